"""Which keys and values are found to be codes with a scale a row."""

from __future__ import annotations

from dataclasses import replace

import pytest

from poot.ir.text import parse
from poot.limits import profile
from poot.planner.codes import coded_of, coded_pair, is_of_16_bits
from poot.planner.grouped import choose_grouped
from poot.planner.request import Choice
from tests.support.attention_forms import Form, form_only
from tests.support.grouped import decode

FORM = decode(2, 4, 2, 40, 64, "f32", codes="i8")


def _parts(text: str):
    graph = parse(text)
    eqn = next(e for e in graph.eqns if e.op == "attention")
    names = eqn.attr("operands")
    assert isinstance(names, tuple)
    return graph, dict(zip(names, eqn.ins, strict=True))


@pytest.mark.parametrize("codes", ["i8", "f8e4m3"])
@pytest.mark.parametrize("dtype", ["f32", "bf16"])
@pytest.mark.parametrize("paged", [False, True])
def test_codes_times_scales_are_found_through_moves_casts_and_a_map(codes, dtype, paged):
    form = decode(2, 4, 2, 40, 64, dtype, codes=codes, paged=paged)
    graph, at = _parts(form_only(form))
    found = coded_pair(graph, at)
    assert found is not None
    inputs = {i.var.id: i.name for i in graph.inputs}
    assert [inputs[c.codes.id] for c in found] == ["k", "v"]
    assert [inputs[c.scales.id] for c in found] == ["k_scale", "v_scale"]
    assert {c.index and inputs[c.index.id] for c in found} == {"read" if paged else None}


def test_one_key_head_and_scales_with_an_axis_of_their_own_are_found():
    text = """
        slot v0: f32[1,4,1,8] "q"
        slot v1: i8[1,1,30,8] "k"
        slot v2: f32[1,1,30,1] "ks"
        v3: f32[1,1,30,8] = cast(v1) dtype=f32
        v4: f32[1,1,30,8] = mul(v2, v3)
        v5: f32[1,4,1,8] = attention(v0, v4, v4) operands=(q, k, v) scale=1.0
        out v5"""
    graph, at = _parts(text)
    assert coded_pair(graph, at) is not None


WRONG = {
    "a scale a channel": ("f32[1,2,1,8]", "v2", "v3"),
    "a scale a key of all heads": ("f32[1,1,30,1]", "v2", "v3"),
    "codes squared": ("f32[1,2,30,8]", "v3", "v3"),
}


@pytest.mark.parametrize("why", WRONG)
def test_other_products_are_not_taken_for_them(why: str):
    scale, left, right = WRONG[why]
    text = f"""
        slot v0: f32[1,4,1,8] "q"
        slot v1: i8[1,2,30,8] "k"
        slot v2: {scale} "ks"
        v3: f32[1,2,30,8] = cast(v1) dtype=f32
        v4: f32[1,2,30,8] = mul({left}, {right})
        v5: f32[1,4,1,8] = attention(v0, v4, v4) operands=(q, k, v) scale=1.0
        out v5"""
    graph, at = _parts(text)
    assert coded_of(graph, at["k"]) is None


def test_a_transposed_cache_is_not_taken_for_one():
    text = """
        slot v0: f32[1,4,1,8] "q"
        slot v1: i8[1,2,8,30] "k"
        slot v2: f32[1,2,30,1] "ks"
        v3: i8[1,2,30,8] = transpose(v1) perm=(0, 1, 3, 2)
        v4: f32[1,2,30,8] = cast(v3) dtype=f32
        v5: f32[1,2,30,8] = mul(v4, v2)
        v6: f32[1,4,1,8] = attention(v0, v5, v5) operands=(q, k, v) scale=1.0
        out v6"""
    graph, at = _parts(text)
    assert coded_of(graph, at["k"]) is None


def test_keys_by_one_map_and_values_by_another_are_no_pair():
    text = form_only(decode(2, 4, 2, 40, 64, "f32", codes="i8", paged=True))
    lines = text.splitlines()
    other = next(n for n, x in enumerate(lines) if '"read"' in x)
    assert coded_pair(*_parts(text)) is not None
    gathers = [n for n, x in enumerate(lines) if "= gather(" in x]
    for n in gathers[2:]:
        lines[n] = lines[n].replace(f", v{other})", ", v99)")
    lines.insert(other + 1, 'slot v99: i32[2,40] "other" range=(0, 87)')
    assert coded_pair(*_parts("\n".join(lines))) is None


def test_queries_of_16_bits_are_known_by_their_casts():
    for query, wanted in (("", False), ("bf16", True), ("f16", True)):
        graph, at = _parts(form_only(decode(2, 4, 2, 40, 64, "f32", codes="i8", query=query)))
        assert is_of_16_bits(graph, at["q"]) == wanted


def _chosen(form: Form, name: str = "h200", **limits: object) -> Choice | str:
    card = replace(profile(name), **limits)  # type: ignore[arg-type]
    return choose_grouped(parse(form_only(form)), card)


@pytest.mark.parametrize("width, warps", [(64, 8), (128, 8), (256, 6)])
def test_the_card_takes_every_width_of_matrix_units(width: int, warps: int):
    for heads in (8, 64):
        form = decode(32, heads, 8, 4096, width, "f32", codes="f8e4m3", live=True)
        found = _chosen(form)
        assert isinstance(found, Choice)
        assert heads == 64 or found.schedule.get("warps") == warps


def test_what_is_not_taken_says_why():
    wide = decode(2, 4, 2, 40, 96, "f32", codes="i8")
    assert "widths 64, 128, 256" in str(_chosen(wide))
    old = decode(2, 4, 2, 40, 64, "f32", codes="f8e4m3")
    assert "f16 of f8e4m3" in str(_chosen(old, arch="sm_80"))
    assert isinstance(_chosen(FORM, arch="sm_80"), Choice)
