"""What configurations say of codes."""

from __future__ import annotations

import pytest

from poot.errors import FormatError
from poot.llm.json_config import keys_of
from poot.llm.models.families.coding import MAX_GROUP, read_coding
from poot.llm.models.parts.kinds import Coding
from tests.support.hf_coded import KINDS


def reading(**said: object) -> Coding | None:
    return read_coding(keys_of("config.json", {"quantization_config": said}))


def test_each_method_is_read_with_its_sizes():
    got = {name: reading(**kind.said) for name, kind in KINDS.items()}
    assert got == {
        "fp8": Coding("fp8", (20, 4)),
        "fp8_rows": Coding("fp8_rows"),
        "awq": Coding("awq", (1, 16)),
        "gptq": Coding("gptq", (1, 16), zero=1),
        "mxfp4": Coding("mxfp4"),
    }
    assert reading(quant_method="fp8") == Coding("fp8", (128, 128))
    assert reading(quant_method="gptq", bits=4, checkpoint_format="gptq_v2") == Coding(
        "gptq", (1, 128), zero=0
    )
    assert reading(quant_method="awq", bits=4, group_size=-1) == Coding("awq", (1, MAX_GROUP))
    assert read_coding(keys_of("config.json", {})) is None


@pytest.mark.parametrize(
    "method, edits, words",
    [
        ("fp8", {"quant_method": "bitsandbytes"}, r"quantised \(bitsandbytes\); poot reads awq"),
        ("fp8", {"quant_method": None}, "a kind not named"),
        ("fp8", {"fmt": "e5m2"}, "fmt is 'e5m2'"),
        ("fp8", {"activation_scheme": "static"}, "activation_scheme is 'static'"),
        ("fp8", {"weight_block_size": [128]}, "an array of 2 integers"),
        ("fp8", {"weight_block_size": [0, 128]}, "two extents above 0"),
        ("fp8_rows", {"format": "pack-quantized"}, "format is 'pack-quantized'"),
        ("fp8_rows", {"config_groups": {}}, "has 0 config_groups"),
        ("awq", {"bits": 8}, "bits is 8"),
        ("awq", {"zero_point": False}, "zero_point is False"),
        ("awq", {"version": "gemv"}, "version is 'gemv'"),
        ("awq", {"group_size": 0}, "group_size is 0"),
        ("gptq", {"bits": 3}, "bits is 3"),
        ("gptq", {"group_size": "all"}, "group_size is 'all'"),
    ],
)
def test_what_poot_does_not_read_is_named(method: str, edits: dict[str, object], words: str):
    with pytest.raises(FormatError, match=words):
        reading(**{**KINDS[method].said, **edits})


@pytest.mark.parametrize("weights", [
    {"num_bits": 4, "type": "float", "strategy": "channel"},
    {"num_bits": 8, "type": "int", "strategy": "channel"},
    {"num_bits": 8, "type": "float", "strategy": "group"},
])  # fmt: skip
def test_only_floats_of_eight_bits_a_row_are_read_of_compressed_tensors(weights: dict[str, object]):
    groups = {"group_0": {"weights": weights}}
    with pytest.raises(FormatError, match=r"num_bits is|strategy is"):
        reading(**{**KINDS["fp8_rows"].said, "config_groups": groups})
