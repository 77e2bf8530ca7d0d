"""Whether a plan fits."""

from __future__ import annotations

import pytest

from poot.errors import BindingLimit, MemoryBudget
from poot.planner.budget import check_bindings, check_budget
from tests.support.plans import LIMITS, plan_text, small

TEXT = 'slot v0: f32[64] "x"\nv1: f32[64] = exp(v0)\nout v1'


def test_a_plan_within_every_limit_passes():
    check_bindings(plan_text(main=TEXT))
    check_budget({"arena": 256, "results": 256}, LIMITS, 512)


def test_more_memory_than_there_is_names_the_spaces():
    with pytest.raises(MemoryBudget, match=r"needs 768 bytes .* may take 512 .*arena 256, results"):
        check_budget({"arena": 256, "results": 512}, LIMITS, 512)


@pytest.mark.parametrize("space, words", [("arena", "the arena needs"), ("results", "the results")])
def test_a_space_over_the_largest_buffer_is_refused(space: str, words: str):
    with pytest.raises(BindingLimit, match=f"{words}.*2048 bytes in one buffer"):
        check_budget({space: 2048}, small(buffer_nbytes=1024), None)
