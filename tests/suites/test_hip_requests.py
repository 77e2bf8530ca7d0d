"""The fixed list of steps as HIP text, run on the CPU by fibers, against the oracle."""

from __future__ import annotations

import numpy as np
import pytest

from poot.codegen.emitters import emit
from poot.codegen.gen.lower import lower
from tests.support.hip.fiber_device import FiberDevice
from tests.support.launch import assert_close, inputs_of, wanted
from tests.support.on_device import run_on
from tests.support.requests import CASES, Case

PARTS = 4


def given(case: Case, request: object) -> list[np.ndarray]:
    """Random inputs; lengths and pool slots within what the op reads."""
    ins = inputs_of(request)
    if case.name == "attention-live":
        ins[3] = np.array([1, 37], np.int32)
    if case.name == "attention-paged":
        slots = np.random.default_rng(0).permutation(50)[:37].astype(np.int32)
        ins[3] = np.broadcast_to(slots, (2, 37)).copy()
    return ins


@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize("target", ["hip-fibers-32", "hip-fibers-64"])
def test_each_step_is_the_oracles_by_fibers(target: str, part: int):
    device = FiberDevice(int(target[-2:]))
    cases = [CASES[name] for name in sorted(CASES)[part::PARTS]]
    calls = [c for case in cases for c in lower(case.request(device.limits), device.limits).calls]
    device.load([emit(c.kernel, device.limits) for c in calls])  # one library of all
    for case in cases:
        request = case.request(device.limits)
        ins = given(case, request)
        for got, want in zip(run_on(device, request, ins), wanted(request, ins), strict=True):
            assert_close(got, want, case.within)
