"""The fixed list of steps, in the simulator and on each device, against the oracle."""

from __future__ import annotations

import numpy as np
import pytest

from poot.codegen.emitters import emit
from poot.codegen.gen.lower import SCHEDULES, lower
from poot.limits import PROFILES, DeviceLimits
from poot.planner.request import Request
from tests.support.gpu import DEVICES, clean, gpu, validate
from tests.support.launch import assert_close, inputs_of, run_request, wanted
from tests.support.on_device import run_on
from tests.support.requests import CASES, Case, cases

SIMULATED = ("lavapipe", "webgpu-baseline", "h200", "cpu-avx2")


def fits(request: Request, limits: DeviceLimits) -> bool:
    """Whether a device binds the step's buffers: planner/fewer_operands.py packs those of a step
    with more."""
    return len(request.body.inputs) + len(request.body.outputs) <= limits.storage_buffers


def given(case: Case, request: Request) -> list[np.ndarray]:
    """Random inputs, lengths and pool slots within what the op reads."""
    if case.feed is not None:
        return case.feed()
    ins = inputs_of(request)
    if case.name == "attention-live":
        ins[3] = np.array([1, 37], np.int32)
    if case.name == "attention-paged":
        ins[3] = np.random.default_rng(0).permutation(50)[:37].astype(np.int32) + np.zeros(
            (2, 1), np.int32
        )
    return ins


@pytest.mark.parametrize(
    "profile, name", [(p, name) for p in SIMULATED for name in cases(PROFILES[p])]
)
def test_each_step_is_the_oracles_in_the_simulator(profile, name):
    limits = PROFILES[profile]
    case = cases(limits)[name]
    request = case.request(limits)
    ins = given(case, request)
    for got, want in zip(run_request(request, ins, limits), wanted(request, ins), strict=True):
        assert_close(got, want, case.within)


@pytest.mark.parametrize("target", DEVICES)
def test_each_step_is_the_oracles_on_a_device(target):
    device = gpu(target)
    for case in cases(device.limits).values():
        request = case.request(device.limits)
        if target == "ptx" and request.schedule.name == "latent":
            continue  # the machine that runs PTX here has no warpgroups
        if not fits(request, device.limits):
            continue
        ins = given(case, request)
        for got, want in zip(run_on(device, request, ins), wanted(request, ins), strict=True):
            assert_close(got, want, case.within)
    clean(device)


def test_the_list_reaches_every_schedule_that_a_card_runs():
    limits = PROFILES["h200"]
    reached = {case.request(limits).schedule.name for case in cases(limits).values()}
    others = {"panels", "key_blocks", "grouped_split"}  # of the CPU; of a GPU without "grouped"
    assert set(SCHEDULES) - reached == others


def test_each_steps_module_is_valid():
    for profile in ("lavapipe", "webgpu-baseline"):
        limits = PROFILES[profile]
        for case in CASES.values():
            request = case.request(limits)
            for call in lower(request, limits).calls if fits(request, limits) else ():
                validate(emit(call.kernel, limits).binary)


def test_lowering_a_request_twice_gives_the_same_kernels():
    limits = PROFILES["lavapipe"]
    for case in CASES.values():
        request = case.request(limits)
        assert lower(request, limits) == lower(request, limits), case.name
