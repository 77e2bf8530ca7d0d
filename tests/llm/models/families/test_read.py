"""Parts of configurations that families share."""

from __future__ import annotations

import math

import pytest

from poot.errors import FormatError
from poot.llm.keys import Keys
from poot.llm.models.families.read import read_rotary, rope_keys, yarn_size
from poot.ops.rope import FactorScaling, LinearScaling, YarnScaling


def test_a_part_of_each_head_turns():
    assert read_rotary(Keys("c", {"partial_rotary_factor": 0.25}), 64, 128).dim == 16
    with pytest.raises(FormatError, match="turns 7 of each head's 15 elements"):
        read_rotary(Keys("c", {"partial_rotary_factor": 0.5}), 15, 128)


def test_scalings_are_read_by_their_kind():
    linear = {"type": "linear", "factor": 4.0}
    keys = Keys("c", {f"rope_scaling.{k}": v for k, v in linear.items()} | {"rope_theta": 5e4})
    rotary = read_rotary(rope_keys(keys), 64, 128)
    assert (rotary.theta, rotary.scaling) == (5e4, LinearScaling(4.0))
    yarn = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32}
    assert read_rotary(Keys("c", yarn), 64, 128).scaling == YarnScaling(4.0, 32)


def test_longropes_size_follows_from_how_much_longer_it_is():
    said = {"rope_type": "longrope", "short_factor": (1.0,) * 4, "long_factor": (2.0,) * 4,
            "original_max_position_embeddings": 32}  # fmt: skip
    rotary = read_rotary(Keys("c", said), 8, 256)
    size = math.sqrt(1 + math.log(8) / math.log(32))
    assert rotary.long == FactorScaling((2.0,) * 4, size)
    assert rotary.original == 32


def test_yarn_grows_nothing_below_a_factor_of_one():
    assert yarn_size(0.5, 1.0) == yarn_size(1.0, 1.0) == 1.0
