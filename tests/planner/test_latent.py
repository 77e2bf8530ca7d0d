"""When a decode is over latent rows, where its rows lie, and into how many parts keys are cut."""

from __future__ import annotations

from dataclasses import replace

import pytest

from poot.ir.text import parse
from poot.planner.latent import nbytes_of, operands_of, rows_of, splits_of
from poot.planner.request import Choice
from poot.planner.tiled import choose_on_card
from tests.support.latent import H200, Form, latent_text

WIDE = Form(heads=128, keys=4096, width=576, value_width=512)


def chosen(form: Form, limits=H200, text: str = "") -> Choice | str:
    return choose_on_card(parse(text or latent_text(form)[0]), limits)


@pytest.mark.parametrize("kind", ["joined", "gathered", "split", "paged"])
def test_rows_are_found_through_what_moves_no_element(kind):
    graph = parse(latent_text(replace(WIDE, kind=kind))[0])
    (eqn,) = (e for e in graph.eqns if e.op == "attention")
    at, names = operands_of(eqn), {i.name: i.var for i in graph.inputs}
    keys, values = (rows_of(graph, at[n], at.get("read")) for n in ("k", "v"))
    assert keys == values is not None
    is_split = kind in ("split", "paged")
    assert keys.source == names["own" if is_split else "rows"]
    assert keys.index == (names["map"] if kind in ("gathered", "paged") else None)
    if is_split:
        shared = rows_of(graph, at["k_shared"], None)
        assert (shared.source, shared.index) == (names["apart"], keys.index)


def test_a_slice_of_channels_moves_where_rows_begin():
    graph = parse("""in v0: bf16[1,1,8,192]
v1: bf16[1,1,8,128] = slice(v0) start=(0, 0, 0, 64) step=(1, 1, 1, 1) stop=(1, 1, 8, 192)
v2: bf16[1,1,8,64] = slice(v1) start=(0, 0, 0, 8) step=(1, 1, 1, 1) stop=(1, 1, 8, 72)
v3: bf16[1,1,4,128] = slice(v1) start=(0, 0, 4, 0) step=(1, 1, 1, 1) stop=(1, 1, 8, 128)
v4: bf16[1,1,8,128] = neg(v1)
out v2, v3, v4""")
    found = {e.outs[0].id: rows_of(graph, e.outs[0], None) for e in graph.eqns}
    assert found[2].first == 72
    assert found[3] is None
    assert found[4] is None


def test_a_turn_of_axes_keeps_rows_only_where_their_order_stays():
    graph = parse("""in v0: bf16[2,1,8,64]
v1: bf16[2,8,1,64] = transpose(v0) perm=(0, 2, 1, 3)
v2: bf16[8,2,1,64] = transpose(v1) perm=(1, 0, 2, 3)
v3: bf16[2,8,8,8] = reshape(v1) shape=(2, 8, 8, 8)
out v2, v3""")
    first, second, third = (e.outs[0] for e in graph.eqns)
    assert rows_of(graph, first, None).source == graph.inputs[0].var
    assert rows_of(graph, second, None) is None
    assert rows_of(graph, third, None) is None


def test_few_units_are_cut_into_as_many_parts_as_end_first():
    assert splits_of(2, 32768, H200) == 64
    assert splits_of(64, 4096, H200) == 2
    assert splits_of(128, 4096, H200) == 1
    assert splits_of(256, 4096, H200) == 1
    assert splits_of(1, 10, H200) == 1
    assert splits_of(96, 8192, H200) > 1  # one part each would leave a quarter of the card idle


def test_a_group_of_the_widest_rows_fits_the_card():
    assert nbytes_of(576) <= H200.workgroup_nbytes < nbytes_of(640)


@pytest.mark.parametrize(
    "form, limits, reason",
    [
        (WIDE, replace(H200, arch="sm_80"), "no warpgroup products"),
        (replace(WIDE, width=640), H200, "keys of 640 take"),
        (replace(WIDE, width=568), H200, "no keys of 568 and 0"),
        (replace(WIDE, value_width=448), H200, "with values of 448"),
        (replace(WIDE, kind="split", width=1152, value_width=1024), H200, "too wide"),
    ],
)
def test_what_it_is_not_for_is_said(form, limits, reason):
    found = chosen(form, limits)
    assert isinstance(found, str)
    assert reason in found


def test_values_of_their_own_are_no_latent_rows():
    text = """in v0: bf16[1,128,1,576]
in v1: bf16[1,1,256,576]
in v2: bf16[1,1,256,512]
v3: bf16[1,128,1,512] = attention(v0, v1, v2) operands=(q, k, v) scale=0.1
out v3"""
    assert "values are not the first channels of the keys" in str(chosen(WIDE, text=text))


def test_the_partial_states_are_scratch():
    found = chosen(WIDE)
    assert isinstance(found, Choice)
    assert found.schedule.name == "latent"
    (scratch,) = found.scratch
    assert scratch.elems == 128 * found.schedule.get("splits") * 514
    assert not scratch.at_rest
