"""What a decoder is made of."""

from __future__ import annotations

import numpy as np

from poot.llm.models.parts.kinds import Rotary
from poot.ops.rope import FactorScaling, rope_tables

LONG = Rotary(4, 1e4, FactorScaling((1.0, 1.0)), FactorScaling((2.0, 4.0), 1.5), original=32)


def test_the_long_factors_serve_caches_past_the_original_length_only():
    for capacity, scaling in ((32, LONG.scaling), (33, LONG.long)):
        got, want = LONG.tables(40, capacity), rope_tables(40, 1e4, 4, scaling)
        np.testing.assert_array_equal(got, want)
