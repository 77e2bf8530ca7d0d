"""Lanes as threads: races and stray accesses, in steps of the fixed list and where they are
planted."""

from __future__ import annotations

import numpy as np
import pytest

from poot.codegen.code import Code
from poot.codegen.emitters import emit
from poot.codegen.gen.lower import lower
from tests.support.hip import planted
from tests.support.hip.fiber_device import WAVES, fiber_limits
from tests.support.hip.threads import Outcome, Programs, programs
from tests.support.launch import assert_close, device_buffers, inputs_of, outputs_of, wanted
from tests.support.requests import CASES

GRID = (2, 1, 1)
# One step of each kind that uses workgroup memory or updates in place.
STEPS = (
    "softmax-f32", "argmax-f32", "topk-i32", "linear-f32", "matmul-f16-shared", "matmul-f32-tiled",
    "attention-decode", "attention-bf16", "row-update-f16-33",
    "best-5-f32", "selected-0-f32",
)  # fmt: skip
SANITIZERS = ("thread", "address,undefined")


def faulty(wave: int, sanitizer: str) -> tuple[Programs, dict[str, int]]:
    limits = fiber_limits(wave)
    codes: dict[str, Code] = {
        "right": planted.rotate(limits),
        "exchange": planted.exchange(limits),
        "without barrier": planted.without_barrier(limits),
        "divergent barrier": planted.divergent_barrier(limits),
        "outside": planted.outside_write(limits, 1),
        "outside shared": planted.outside_shared(limits),
    }
    made = programs(list(codes.values()), wave, sanitizer)
    return made, {name: n for n, name in enumerate(codes)}


def outcome(wave: int, sanitizer: str, name: str, timeout: float = 60.0) -> Outcome:
    made, at = faulty(wave, sanitizer)
    return made.run(at[name], {"x": planted.feed()}, GRID, timeout=timeout)


@pytest.mark.parametrize("sanitizer", SANITIZERS)
@pytest.mark.parametrize("wave", WAVES)
def test_what_is_right_is_clean(wave: int, sanitizer: str):
    for name in ("right", "exchange"):
        got = outcome(wave, sanitizer, name)
        assert got.is_clean, got.said
        if name == "right":
            np.testing.assert_array_equal(got.arrays["y"], planted.rotated(planted.feed()))


def test_a_removed_barrier_is_a_race():
    got = outcome(64, "thread", "without barrier")
    assert not got.is_clean
    assert "data race" in got.said
    assert "rotate.hip" in got.said


def test_a_divergent_barrier_never_ends():
    got = outcome(64, "thread", "divergent barrier", timeout=5.0)
    assert not got.is_clean
    assert "wait for one another" in got.said


@pytest.mark.parametrize("name", ["outside", "outside shared"])
def test_an_out_of_bounds_write_is_found(name: str):
    got = outcome(32, "address,undefined", name)
    assert not got.is_clean
    assert "AddressSanitizer" in got.said or "runtime error" in got.said


@pytest.mark.parametrize("sanitizer", SANITIZERS)
@pytest.mark.parametrize("wave", WAVES)
def test_steps_of_the_fixed_list_are_clean_and_right(wave: int, sanitizer: str):
    limits = fiber_limits(wave)
    requests = [CASES[name].request(limits) for name in STEPS]
    steps = [lower(request, limits) for request in requests]
    codes = [emit(call.kernel, limits) for step in steps for call in step.calls]
    made, at = programs(codes, wave, sanitizer), 0
    for name, request, step in zip(STEPS, requests, steps, strict=True):
        ins = inputs_of(request)
        buffers = device_buffers(request, ins)
        for call in step.calls:
            arrays = {
                p.name: buffers[arg] for p, arg in zip(call.kernel.params, call.args, strict=True)
            }
            got = made.run(at, arrays, call.grid, call.imms)
            at += 1
            assert got.is_clean, f"{name}: {got.said}"
            for p, arg in zip(call.kernel.params, call.args, strict=True):
                if p.access != "r":
                    raw = np.ascontiguousarray(got.arrays[p.name])
                    buffers[arg][:] = to_device_bytes(raw, buffers[arg].size)
        for mine, theirs in zip(outputs_of(request, buffers), wanted(request, ins), strict=True):
            assert_close(mine, theirs, CASES[name].within)


def to_device_bytes(array: np.ndarray, nbytes: int) -> np.ndarray:
    """The bytes of an array as it came back, cut or padded to a buffer's."""
    raw = array.reshape(-1).view(np.uint8)
    return np.concatenate([raw, np.zeros(max(0, nbytes - raw.size), np.uint8)])[:nbytes]


def test_bytes_come_back_at_the_buffers_size():
    assert to_device_bytes(np.ones(3, np.uint8), 4).tolist() == [1, 1, 1, 0]
