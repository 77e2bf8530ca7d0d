"""A claim that does not hold is an answer with a reason and a line."""

from __future__ import annotations

import pytest

from poot.passes.attention.declines import Decline, claim


def test_a_claim_that_holds_says_nothing():
    claim(True, "never seen")


def test_a_claim_that_fails_carries_its_reason_and_line():
    with pytest.raises(Decline, match="the reason") as e:
        claim(False, "the reason", "model.py:3")
    assert (e.value.reason, e.value.loc) == ("the reason", "model.py:3")
