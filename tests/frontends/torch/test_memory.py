"""Which tensors a run reads where they lie, and which are copied."""

from __future__ import annotations

import pytest
import torch

import poot
from poot.caller_runner import CallerRunner
from poot.errors import BindError
from poot.frontends.torch.memory import DTYPES, Memory, empty, seen
from poot.ir.dtypes import DTYPES as POOTS
from poot.ir.graph import TensorType
from tests.support.everywhere import compile_on

CPU = torch.device("cpu")


def runner_of(*specs: object, fn=lambda *xs: sum(x.sum() for x in xs)) -> CallerRunner:
    return CallerRunner(compile_on("cpu", poot.trace(fn, specs)), {}, "main")


def given(runner: CallerRunner, tensor: torch.Tensor) -> Memory:
    memory = Memory(runner, CPU)
    memory.give_slot(runner.slots[0], tensor)
    return memory


def test_every_dtype_of_poot_is_one_of_torch():
    assert set(DTYPES) == set(POOTS)
    assert all(DTYPES[n].itemsize == POOTS[n].nbytes for n in DTYPES if n != "bool")


def test_a_slot_of_whole_vectors_is_bound_where_it_lies():
    x = torch.randn(4, 8)
    assert given(runner_of(poot.slot((4, 8), "f32")), x).at["slot:xs.0"] == (x.data_ptr(), 128)


@pytest.mark.parametrize("kind", ["odd address", "odd size", "apart"])
def test_what_can_not_be_bound_is_copied_to_its_place(kind):
    shape = (3, 7) if kind == "odd size" else (4, 8)
    whole = torch.randn(8, 9)
    x = {
        "odd address": whole.view(-1)[1:33].view(4, 8), "odd size": torch.randn(3, 7),
        "apart": whole[:4, :8],
    }[kind]  # fmt: skip
    runner = runner_of(poot.slot(shape, "f32"))
    memory = given(runner, x)
    if kind == "apart":  # made contiguous, which is a copy of torch's
        assert memory.at["slot:xs.0"][0] != x.data_ptr()
        return
    assert "slot:xs.0" not in memory.at
    place = runner.slots[0].place
    there = memory._part(place)[: x.numel() * 4].clone().view(torch.float32)
    assert torch.equal(there.view(shape), x)


def test_a_state_is_refused_where_it_can_not_be_written_in_place():
    specs = (poot.state((4, 8)), poot.slot((4, 8), "f32"))
    runner = runner_of(*specs, fn=lambda s, x: (x, s + x))
    memory = Memory(runner, CPU)
    (state,) = runner.states
    memory.give_state(state, torch.zeros(4, 8))
    for odd in (torch.zeros(8, 4).T, torch.zeros(33)[1:].view(4, 8)):
        with pytest.raises(BindError, match=r"State \w+ is written where it lies"):
            memory.give_state(state, odd)


@pytest.mark.parametrize(
    "tensor", [torch.zeros(4, 7), torch.zeros(4, 8, dtype=torch.float64), torch.zeros(32)]
)
def test_a_tensor_of_another_type_is_refused_with_both(tensor):
    with pytest.raises(BindError, match=r"xs.0 needs f32\[4,8\]: got torch.float"):
        given(runner_of(poot.slot((4, 8), "f32")), tensor)


def test_a_tensor_of_another_device_is_refused():
    with pytest.raises(BindError, match="needs a tensor on cpu: got one on meta"):
        given(runner_of(poot.slot((4, 8), "f32")), torch.zeros(4, 8, device="meta"))


@pytest.mark.parametrize("dtype", sorted(DTYPES))
def test_an_outputs_memory_is_whole_vectors(dtype):
    type = TensorType(dtype, (3, 5))
    made = empty(type, CPU)
    assert made.numel() * made.itemsize % 16 == 0
    value = seen(made, type)
    assert (value.shape, value.dtype) == ((3, 5), DTYPES[dtype])
