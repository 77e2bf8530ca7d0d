"""What is read of another library's array, by either protocol."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from poot import dlpack
from poot.backends.cuda.taken import foreign
from poot.errors import BindError


class Interface:
    """An array by `__cuda_array_interface__` alone."""

    def __init__(self, **fields: object) -> None:
        self.__cuda_array_interface__ = {
            "shape": (2, 3), "typestr": "<f4", "data": (0x1000, False), "version": 3, **fields
        }  # fmt: skip


def test_an_interface_is_its_address_type_and_stream():
    array = Interface(stream=9)
    found = foreign(array, 0, 7, "x")
    assert found is not None
    assert (found.pointer, str(found.type), found.stream) == (0x1000, "f32[2,3]", 9)
    assert found.hold is array
    none = foreign(Interface(typestr="<i4", strides=(12, 4)), 0, 7, "x")
    assert none is not None
    assert (str(none.type), none.stream) == ("i32[2,3]", None)


@pytest.mark.parametrize(
    "fields, word",
    [
        ({"strides": (4, 8)}, "contiguous"),
        ({"typestr": "<f8"}, "x is float64 on the device"),
        ({"typestr": "|b1"}, "x is bool on the device"),
    ],
)
def test_an_interface_that_can_not_be_taken_says_why(fields, word):
    with pytest.raises(BindError, match=word):
        foreign(Interface(**fields), 0, 7, "x")


@pytest.mark.parametrize("strides", [(12, 4), (99, 4)])
def test_the_stride_of_one_element_means_nothing(strides):
    shape = (1, 3) if strides[0] == 99 else (2, 3)
    assert foreign(Interface(shape=shape, strides=strides), 0, 7, "x") is not None
    assert foreign(Interface(shape=(0, 3), strides=(1, 1)), 0, 7, "x") is not None


class Theirs:
    """An array over DLPack of a card."""

    def __init__(self, index: int = 0, fails: BaseException | None = None) -> None:
        self.index, self.fails = index, fails
        self.asked: object = "nothing"

    def __dlpack_device__(self) -> tuple[int, int]:
        return dlpack.CUDA, self.index

    def __dlpack__(self, *, stream: int | None = None) -> object:
        if self.fails is not None:
            raise self.fails
        self.asked = stream
        return dlpack.capsule(0x2000, (4,), "bf16", (dlpack.CUDA, self.index), self)


@pytest.mark.parametrize("stream, asked", [(7, 7), (0, 1)])
def test_an_array_over_dlpack_makes_the_stream_wait(stream, asked):
    array = Theirs()
    found = foreign(array, 0, stream, "x")
    assert found is not None
    assert (found.pointer, str(found.type), found.stream) == (0x2000, "bf16[4]", None)
    assert array.asked == asked


def test_what_lies_elsewhere_is_none_and_another_card_is_told():
    for value in (np.zeros(3), torch.zeros(3), object(), 3):
        assert foreign(value, 0, 7, "x") is None
    with pytest.raises(BindError, match="x lies on cuda:2, and this session on cuda:0"):
        foreign(Theirs(2), 0, 7, "x")


def test_what_its_maker_refuses_comes_with_its_words():
    with pytest.raises(BindError, match="x can't be read over DLPack: it has a gradient"):
        foreign(Theirs(fails=BufferError("it has a gradient")), 0, 7, "x")


@pytest.mark.parametrize(
    "given", [5, {}, {"shape": 3}, {"shape": (2,), "typestr": "x", "data": (64, False)},
              {"shape": (2,), "typestr": "<f4", "data": ()},
              {"shape": (2,), "typestr": "<f4", "data": (64, False), "strides": 4}]
)  # fmt: skip
def test_an_interface_that_says_no_array_is_refused_by_name(given):
    class Liar:
        __cuda_array_interface__ = given

    with pytest.raises(BindError, match="x has an __cuda_array_interface__ that says no array"):
        foreign(Liar(), 0, 1, "x")
