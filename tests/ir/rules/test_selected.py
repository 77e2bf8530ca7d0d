from __future__ import annotations

import pytest

from poot.errors import TypeRuleError
from tests.support.rules import refused, typed

DENSE = {
    "q": "f32[2,6,5,16]", "k": "f32[2,3,7,16]", "v": "f32[2,3,7,8]", "ids": "i32[2,1,5,4]",
    "positions": "i32[2,5]",
}  # fmt: skip


def selected(attrs: dict[str, object] | None = None, **operands: str) -> str:
    at = DENSE | operands
    given = {"scale": 1.0, "ratio": 4} | (attrs or {})
    return typed("selected_attention", *at.values(), operands=tuple(at), **given)


def declined(words: str, attrs: dict[str, object] | None = None, **operands: str) -> None:
    with pytest.raises(TypeRuleError, match=words):
        selected(attrs, **operands)


def test_the_best_blocks_are_ids_of_each_row():
    assert typed("block_topk", "bf16[2,3,5,9]", "i32[2,5]", k=4, ratio=4) == "i32[2,3,5,4]"


def test_block_topk_refuses_what_is_no_list_of_scores():
    scores, at = "f32[2,3,5,9]", "i32[2,5]"
    refused("float scores [B,Hs,Lq,N]", "block_topk", "i32[2,3,5,9]", at, k=4, ratio=4)
    refused("float scores [B,Hs,Lq,N]", "block_topk", "f32[2,3,9]", at, k=4, ratio=4)
    refused("positions i32 [B,Lq]", "block_topk", scores, "i32[5]", k=4, ratio=4)
    refused("0 < k <= N", "block_topk", scores, at, k=10, ratio=4)
    refused("0 < k <= N", "block_topk", scores, at, k=0, ratio=4)
    refused("a ratio of 1 or more", "block_topk", scores, at, k=4, ratio=0)
    refused("always tail or own", "block_topk", scores, at, k=4, ratio=4, always="none")


def test_block_scores_are_one_a_row_and_block():
    q, keys = "bf16[2,4,5,64]", "bf16[2,40,64]"
    assert typed("block_scores", q, keys, scale=1.0) == "f32[2,1,5,40]"
    assert typed("block_scores", q, keys, "f32[2,4,5]", scale=1.0) == "f32[2,1,5,40]"
    refused("keys [B,N,d] in q's dtype", "block_scores", q, "bf16[2,40,32]", scale=1.0)
    refused("float q [B,H,Lq,d]", "block_scores", q, "f16[2,40,64]", scale=1.0)
    refused("float weights [B,H,Lq]", "block_scores", q, keys, "f32[2,4,1]", scale=1.0)


def test_selected_attention_takes_its_width_from_v_and_its_rows_from_q():
    assert selected() == "f32[2,6,5,8]"
    assert selected({"lse": True, "always": "own"}) == "f32[2,6,5,8] f32[2,6,5]"


@pytest.mark.parametrize("lists", [1, 3, 6])
def test_a_list_is_for_all_heads_for_each_key_head_or_for_each(lists):
    assert selected(ids=f"i32[2,{lists},5,4]") == "f32[2,6,5,8]"


def test_pools_a_length_a_sink_and_a_shared_part_fit_beside_it():
    pools = {"k": "f32[50,3,16]", "v": "f32[50,3,8]", "read": "i32[2,7]"}
    assert selected(**pools, len="i32[2]", sink="f32[6]") == "f32[2,6,5,8]"
    assert selected(k="f32[2,3,7,12]", k_shared="f32[2,1,7,4]") == "f32[2,6,5,8]"


def test_what_does_not_fit_is_refused():
    declined("Hs 1, Hkv or Hq", ids="i32[2,2,5,4]")
    declined("Hs 1, Hkv or Hq", ids="i32[2,1,4,4]")
    declined("Hs 1, Hkv or Hq", ids="i32[2,1,5,0]")
    declined("positions i32", positions="i32[2,1,5]")
    declined("floats of one dtype", v="bf16[2,3,7,8]")
    declined("Hq a multiple", q="f32[2,7,5,16]")
    declined("as wide a key", q="f32[2,6,5,17]")
    declined("k and v alike", v="f32[2,3,8,8]")
    declined("keys for each batch row", k="f32[1,3,7,16]", v="f32[1,3,7,8]")
    declined("len i32", len="i32[3]")
    declined("sink", sink="f32[3]")
    declined("k_shared", k="f32[2,3,7,12]", k_shared="f32[2,2,7,4]")
    declined("pools", read="i32[2,7]")
    declined("read i32", k="f32[50,3,16]", v="f32[50,3,8]", read="i32[7]")
    declined("a ratio", {"ratio": 0})
    for always in ("some", "window(0)", "window", "window(03)"):
        declined("always", {"always": always})
    with pytest.raises(TypeRuleError, match="operands in order"):
        selected(len="i32[2]", read="i32[2,7]")
    with pytest.raises(TypeRuleError, match="q, k, v, ids, positions"):
        typed("selected_attention", "f32[1,1,1,1]", operands=("q",), ratio=1, scale=1.0)
