"""Every op has a row in every table that answers for ops. pytest's diff is the to-do list."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from poot.ir.ops import OPS
from poot.oracle import ROWS


@pytest.mark.parametrize("table", [pytest.param(ROWS, id="oracle")])
def test_every_op_has_a_row(table: Mapping[str, object]):
    assert sorted(table) == sorted(OPS)
