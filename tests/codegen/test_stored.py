"""Steps in the disk cache: they come back as they went, or not at all."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from poot.codegen.code import Code
from poot.codegen.emitters import emit
from poot.codegen.gen.lowered import KernelCall, Lowered
from poot.codegen.kir.build import KernelBuilder
from poot.codegen.kir.nodes import Kernel
from poot.codegen.stored import decode, encode
from poot.errors import FormatError
from poot.limits import profile


def kernel(name: str) -> Kernel:
    k = KernelBuilder(name, threads=32)
    k.param("x", "f32", 32, "r")
    k.param("y", "f32", 32, "w")
    k.store("y", k.lane(), k.load("x", k.lane()) * 2.0)
    return k.kernel()


def step() -> tuple[Lowered, tuple[Code, ...]]:
    codes = tuple(emit(kernel(n), profile("cpu-avx2")) for n in ("one", "two"))
    args = (("in", 0), ("out", 0))
    calls = tuple(KernelCall(c.kernel, (4, 1, 1), args, (1.5, 2)) for c in codes)
    return Lowered(calls), codes


def test_what_is_stored_comes_back_without_the_bodies():
    lowered, codes = step()
    got, got_codes = decode(encode(lowered, codes))
    bare = [replace(c, kernel=replace(c.kernel, body=())) for c in codes]
    assert list(got_codes) == bare
    calls = [replace(c, kernel=replace(c.kernel, body=())) for c in lowered.calls]
    assert list(got.calls) == calls


def test_equal_steps_are_equal_bytes():
    assert encode(*step()) == encode(*step())


def test_every_cut_is_a_format_error():
    data = encode(*step())
    for size in [*range(0, 200, 7), *range(200, len(data), 211)]:
        with pytest.raises(FormatError):
            decode(data[:size])
    with pytest.raises(FormatError, match="its head accounts for"):
        decode(data + b"\0")


@pytest.mark.parametrize(
    "head", [b"{}", b"[3]", b'[{"kernel": 3}]', b"null", b"\xff\xfe", b"[[[[", b'[{"kernel": {}}]']
)
def test_a_head_of_another_shape_is_a_format_error(head: bytes):
    with pytest.raises(FormatError):
        decode(len(head).to_bytes(8, "little") + head)


def test_numbers_that_are_none_are_a_format_error():
    data = encode(*step())
    size = int.from_bytes(data[:8], "little")
    for key, wrong in (("binary", "many"), ("grid", 3), ("args", [["in"]]), ("binary", -5)):
        rows = json.loads(data[8 : 8 + size])
        rows[0][key] = wrong
        head = json.dumps(rows).encode()
        with pytest.raises(FormatError):
            decode(len(head).to_bytes(8, "little") + head + data[8 + size :])
