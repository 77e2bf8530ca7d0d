from __future__ import annotations

import pytest

from poot.errors import TypeRuleError
from poot.ir.build import Builder
from poot.ir.graph import Slot
from poot.ir.ops import out_types
from tests.support.rules import refused, tensor, typed

DENSE = {"q": "f32[2,6,5,16]", "k": "f32[2,3,7,16]", "v": "f32[2,3,7,8]"}


def attention(attrs: dict[str, object] | None = None, **operands: str) -> str:
    at = DENSE | operands
    return typed("attention", *at.values(), operands=tuple(at), **{"scale": 1.0} | (attrs or {}))


def declined(words: str, attrs: dict[str, object] | None = None, **operands: str) -> None:
    with pytest.raises(TypeRuleError, match=words):
        attention(attrs, **operands)


def test_attention_takes_its_width_from_v_and_its_rows_from_q():
    assert attention() == "f32[2,6,5,8]"
    assert attention({"lse": True}) == "f32[2,6,5,8] f32[2,6,5]"


def test_attention_over_no_row_or_no_batch_row_is_legal():
    assert attention(q="f32[2,6,0,16]") == "f32[2,6,0,8]"
    at = {name: "f32[0," + text.split(",", 1)[1] for name, text in DENSE.items()}
    assert attention(**at) == "f32[0,6,5,8]"


def test_attention_over_no_key_is_refused():
    declined("and keys", k="f32[2,3,0,16]", v="f32[2,3,0,8]")


def test_query_heads_are_a_multiple_of_key_heads():
    assert attention(q="f32[2,71,5,16]", k="f32[2,1,7,16]", v="f32[2,1,7,8]") == "f32[2,71,5,8]"
    declined("a multiple of Hkv", q="f32[2,7,5,16]")


def test_the_key_is_as_wide_as_the_query():
    declined("as wide a key as q", k="f32[2,3,7,15]")
    declined("alike but in width", v="f32[2,3,6,8]")
    declined("keys for each batch row", k="f32[1,3,7,16]", v="f32[1,3,7,8]")


def test_a_shared_part_completes_the_key():
    split = {"k": "f32[2,3,7,12]", "k_shared": "f32[2,1,7,4]"}
    assert attention(**split) == "f32[2,6,5,8]"
    declined("k_shared", **split | {"k_shared": "f32[2,3,7,4]"})


def test_a_paged_key_is_read_through_its_map():
    paged = {"k": "f32[64,3,16]", "v": "f32[64,3,8]", "read": "i32[2,7]"}
    assert attention(**paged) == "f32[2,6,5,8]"
    declined("read i32", **paged | {"read": "i32[1,7]"})
    declined("pools", **paged | {"v": "f32[63,3,8]"})


def test_a_live_length_is_one_word_a_batch_row():
    assert attention(len="i32[2]") == "f32[2,6,5,8]"
    declined("len i32", len="i32[]")


@pytest.mark.parametrize("mask", ["f32[2,6,5,7]", "f32[1,1,1,1]", "f32[2,1,1,7]", "f32[1,6,5,1]"])
def test_a_mask_stretches_over_any_axis(mask):
    assert attention(mask=mask) == "f32[2,6,5,8]"


def test_a_mask_of_another_shape_or_meaning_is_refused():
    declined("a mask of", mask="f32[5,7]")
    declined("a mask of", mask="f32[2,3,5,7]")
    declined("a mask of", mask="bool[2,6,5,7]")
    declined("a mask of", {"mask_fill": -1e9}, mask="f32[2,6,5,7]")
    declined("a mask for mask_fill", {"mask_fill": -1e9})
    assert attention({"mask_fill": -1e9}, mask="bool[2,6,5,7]") == "f32[2,6,5,8]"


def test_a_sink_is_one_logit_a_query_head():
    assert attention(sink="f32[6]") == "f32[2,6,5,8]"
    declined("sink", sink="f32[3]")
    declined("sink", sink="i32[6]")


def test_operands_are_named_in_order():
    types = tuple(tensor(t) for t in (*DENSE.values(), "i32[2]"))
    for names in (("q", "k", "v"), ("q", "v", "k", "len"), ("q", "k", "v", "length")):
        with pytest.raises(TypeRuleError, match="attention needs"):
            out_types("attention", types, (("operands", names), ("scale", 1.0)))


def test_operands_have_one_dtype():
    declined("floats of one dtype", q="f16[2,6,5,16]")
    declined("a q of", q="f32[6,5,16]")


def test_rope_rotates_at_most_its_whole_width():
    assert typed("rope", "f32[2,3,8]", "f32[3,4]", "f32[3,4]", interleaved=True) == "f32[2,3,8]"
    assert typed("rope", "f32[2,3,8]", "f32[3,2]", "f32[3,2]", interleaved=False) == "f32[2,3,8]"
    refused("half as many", "rope", "f32[3,8]", "f32[3,5]", "f32[3,5]", interleaved=True)
    refused("cos and sin alike", "rope", "f32[3,8]", "f32[3,4]", "f32[1,4]", interleaved=True)
    refused("cos and sin alike", "rope", "f32[3,8]", "f16[3,4]", "f16[3,4]", interleaved=True)
    refused(
        "angles that broadcast", "rope", "f32[3,8]", "f32[2,1,4]", "f32[2,1,4]", interleaved=True
    )


def test_a_region_is_typed_by_its_body():
    b = Builder()
    x = b.input(tensor("f32[2,3]"), "x", Slot())
    body = b.graph((b.one("exp", x), b.one("reduce", x, kind="sum", axis=(1,), keepdim=False)))
    assert typed("region", "f32[2,3]", body=body, anchor="reduce") == "f32[2,3] f32[2]"
    refused("typed as the body's inputs", "region", "f32[3,2]", body=body, anchor="reduce")
    refused("a known anchor", "region", "f32[2,3]", body=body, anchor="softmax")
