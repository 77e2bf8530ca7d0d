"""The table of schedules."""

from __future__ import annotations

import pytest

from poot.codegen.gen.lower import SCHEDULES, lower
from poot.codegen.kir.verify import check_arrays
from poot.errors import CapabilityError
from poot.limits import PROFILES
from poot.planner.request import Schedule
from tests.support.launch import LAVAPIPE, request_of
from tests.support.requests import CASES
from tests.support.selected_forms import ALONE, form_text

TEXT = """in v0: f32[4]
          v1: f32[4] = neg(v0)
          out v1"""
SCORES = """in v0: bf16[1,4,1,32]
            in v1: bf16[1,16,32]
            v2: f32[1,1,1,16] = block_scores(v0, v1) scale=1.0
            out v2"""


def test_a_schedule_without_a_generator_is_refused_with_those_there_are():
    request = request_of(TEXT, "none", schedule=Schedule("woven"))
    with pytest.raises(CapabilityError, match=r"no generator writes the schedule 'woven'; .*gemm"):
        lower(request, LAVAPIPE)


def test_the_fixed_list_reaches_every_schedule():
    profiles = [PROFILES[n] for n in ("lavapipe", "webgpu-baseline", "cpu-avx2", "h200", "mi300x")]
    reached = {c.request(p).schedule.name for c in CASES.values() for p in profiles}
    # No other target has a step of this, so it is in no list for all.
    reached.add(request_of(SCORES, "none", limits=PROFILES["h200"]).schedule.name)
    assert reached == set(SCHEDULES)


@pytest.mark.parametrize("name", sorted(n for n, p in PROFILES.items() if p.target != "oracle"))
def test_no_kernel_keeps_workgroup_memory_that_nothing_reads(name: str):
    limits = PROFILES[name]
    requests = [case.request(limits) for case in CASES.values()]
    requests += [request_of(form_text(form)[0], "attention", limits=limits) for form in ALONE]
    for request in requests:
        for call in lower(request, limits).calls:
            check_arrays(call.kernel)
