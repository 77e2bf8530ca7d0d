"""A compile compared with its source: right ones pass, and each kind of wrong one is named."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest

import poot
from poot import ops
from poot.errors import PassError
from poot.ir.graph import Eqn, Graph
from poot.ir.text import parse, show
from poot.limits import profile
from poot.ops import Array
from poot.ops.expand import expand_all
from poot.passes.checking import check_compiled, poisoned_feed, worst_of
from poot.passes.pipeline import run_pipeline

B, HQ, HKV, LK, D, S = 2, 4, 2, 6, 8, 20


def decode(*, paged: bool, masked: bool = False) -> Graph:
    """A step that writes its key and value to the cache and attends to what is live."""

    def fn(q, k, v, new, pos, read, write, mask) -> object:
        if paged:
            k, v = (ops.scatter_update(x, new, write) for x in (k, v))
            rows = [ops.take(x, read, 0).transpose(0, 2, 1, 3) for x in (k, v)]
        else:
            at = new.reshape(B, HKV, 1, D)
            k, v = (ops.dynamic_update_slice(x, at, pos, axis=2) for x in (k, v))
            rows = [k, v]
        out = ops.attention_live(
            q, *rows, pos + 1, scale=0.3, softcap=4.0, mask=mask if masked else None
        )
        return out, (k, v)

    cache = (S, HKV, D) if paged else (B, HKV, LK, D)
    return poot.trace(
        fn,
        (
            poot.slot((B, HQ, 1, D), "f32"),
            poot.state(cache, "f32"),
            poot.state(cache, "f32"),
            poot.slot((B, HKV, D), "f32"),
            poot.slot((B,), "i32", kind="pos", range=(0, LK)),
            poot.slot((B, LK), "i32", kind="slot_map", range=(0, S)),
            poot.slot((B,), "i32", kind="write_map", range=(-1, S)),
            poot.slot((B, 1, 1, LK), "f32"),
        ),
    )


@pytest.mark.parametrize("paged", [False, True])
@pytest.mark.parametrize("masked", [False, True])
def test_what_the_passes_make_is_what_the_source_says(paged: bool, masked: bool):
    graph = decode(paged=paged, masked=masked)
    final, _ = run_pipeline(graph, profile("lavapipe"))
    assert "attention(" in show(final)
    check_compiled(graph, final)


@pytest.mark.parametrize("paged", [False, True])
def test_rows_past_the_length_are_poisoned_and_no_others(paged: bool):
    final, _ = run_pipeline(decode(paged=paged), profile("lavapipe"))
    got = poisoned_feed(expand_all(final, ("region",)), np.random.default_rng(0))
    assert got is not None
    clean, bad = got
    for name in ("k", "v"):
        rows = np.isnan(np.asarray(bad[name])).all(-1)
        assert rows.any()
        assert not np.isnan(np.asarray(clean[name])).any()
        if not paged:
            want = np.arange(LK) > np.asarray(clean["pos"])[:, None]
            np.testing.assert_array_equal(rows[:, 0], want)
            np.testing.assert_array_equal(rows[:, 1], want)
        else:
            pos, read = np.asarray(clean["pos"]), np.asarray(clean["read"])
            assert not rows[[read[b, t] for b in range(B) for t in range(pos[b] + 1)]].any()


def wrongs() -> dict[str, tuple[str, str]]:
    """name -> (what stands in the right text, what in the wrong one)."""
    return {
        "a scale": ("scale=0.30000001192092896", "scale=0.3001"),
        "a softcap": ("softcap=4.0", "softcap=4.5"),
        "a softcap lost": (" softcap=4.0", ""),
    }


@pytest.mark.parametrize("name", list(wrongs()))
def test_a_wrong_number_is_found_with_its_worst_element(name: str):
    graph = decode(paged=True)
    final, _ = run_pipeline(graph, profile("lavapipe"))
    text = show(final)
    right, wrong = wrongs()[name]
    if name == "a scale":
        right = next(w for w in text.split() if w.startswith("scale="))
    assert right in text
    with pytest.raises(PassError, match=r"output 0\[\d,\d,\d,\d\] is .*, not .*: off by .* ulp"):
        check_compiled(graph, parse(text.replace(right, wrong)))


def test_a_length_that_was_lost_is_found():
    graph = decode(paged=False)
    final = expand_all(run_pipeline(graph, profile("lavapipe"))[0], ("region",))
    eqns: list[Eqn] = []
    for e in final.eqns:
        names = e.attr("operands")
        if isinstance(names, tuple):
            ins = tuple(v for v, n in zip(e.ins, names, strict=True) if n != "len")
            left = tuple(n for n in names if n != "len")
            attrs = tuple((k, left if k == "operands" else x) for k, x in e.attrs)
            eqns.append(replace(e, ins=ins, attrs=attrs))
        else:
            eqns.append(e)
    with pytest.raises(PassError, match="differs from its source on"):
        check_compiled(graph, replace(final, eqns=tuple(eqns)))


def test_a_state_and_a_guard_that_change_are_found():
    text = """
        state v0: i32[4] "s" -> v2
        slot v1: i32[] "n" range=(0, 9)
        v2: i32[4] = add(v0, v1)
        v3: i32[], v4: bool[] = index_guard(v1) hi={} lo=0
        validate v4
        out v3
        """
    graph = parse(text.format(8))
    check_compiled(graph, graph)
    with pytest.raises(PassError, match=r"guards that held|output 0"):
        check_compiled(graph, parse(text.format(9)))
    with pytest.raises(PassError, match=r"state s\[0\] is .*: off by"):
        check_compiled(graph, parse(text.format(8).replace("add(v0", "sub(v0")))


def test_the_worst_element_is_in_places_of_its_dtype():
    want = np.asarray([1.0, 2.0, np.nan, np.inf])
    assert worst_of("x", "f32", want, want) is None
    near = worst_of("x", "f32", want + np.asarray([0, 1e-6, 0, 0]), want)
    assert near is None
    far = worst_of("x", "f32", want + np.asarray([0, 2.0**-10, 0, 0]), want)
    assert far is not None
    assert (far.index, far.ulps) == ((1,), 2.0**12)
    lost = worst_of("x", "f16", np.asarray([1.0, 2.0, 0.0, np.inf]), want)
    assert lost is not None
    assert lost.index == (2,)
    count = worst_of("n", "i32", np.asarray([3, 4]), np.asarray([3, 5]))
    assert re.fullmatch(r"n\[1\] is 4\.0, not 5\.0: off by 1 ulp", str(count))


def test_a_compile_is_checked_where_the_knob_says_so(monkeypatch: pytest.MonkeyPatch):
    seen: list[Graph] = []
    monkeypatch.setattr("poot.making.check_compiled", lambda source, final: seen.append(source))
    monkeypatch.delenv("POOT_CHECK", raising=False)
    graph = decode(paged=True)
    poot.compile(graph, target="lavapipe", cache=False)
    assert seen == []
    monkeypatch.setenv("POOT_CHECK", "1")
    poot.compile(graph, target="lavapipe", cache=False)
    assert seen == [graph]


def test_a_plain_function_of_floats_is_checked_as_well():
    def fn(x: Array) -> Array:
        return ops.softmax(x * 2.0, 1)

    graph = poot.trace(fn, (poot.weight((3, 5), "bf16"),))
    final, _ = run_pipeline(graph, profile("lavapipe"))
    check_compiled(graph, final)


def test_rows_that_no_draw_names_once_each_are_not_checked_and_said_so(
    caplog: pytest.LogCaptureFixture,
):
    """A write map computed from one row number for all: no input of the program is legal."""
    text = """
        state v0: f32[4] "pool" -> v4
        slot v1: i32[] "at" range=(0, 4)
        in v2: f32[2]
        v3: i32[2] = broadcast(v1) shape=(2,)
        v4: f32[4] = scatter_update(v0, v2, v3)
        out v2
        """
    check_compiled(parse(text), parse(text))
    assert "not checked" in caplog.text


def test_rows_of_an_update_are_drawn_once_each(caplog: pytest.LogCaptureFixture):
    text = """
        state v0: f32[40] "pool" -> v3
        slot v1: i32[30] "rows" range=(0, 40)
        in v2: f32[30]
        v3: f32[40] = scatter_update(v0, v2, v1)
        out v2
        """
    check_compiled(parse(text), parse(text))
    assert caplog.text == ""
    other = text.replace("scatter_update(v0, v2, v1)", "neg(v0)")
    with pytest.raises(PassError, match="state pool"):
        check_compiled(parse(text), parse(other))
