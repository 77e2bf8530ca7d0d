"""The table of attention forms: each with each other that may combine with it, traced from ops,
fused into one eqn that shows them, and equal to the oracle on every target."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from poot.api import Program
from tests.support.everywhere import compile_on, device_of, eqns_of, on, run_program
from tests.support.form_table import (
    ADDED,
    APART,
    FORMS,
    ONE_OF,
    Row,
    check_fields,
    feed_of,
    graph_of,
    row,
    wanted,
    why_apart,
)
from tests.support.fused import only, rewritten
from tests.support.tol import assert_within

# Every two forms that may stand together do so in one of these.
ROWS = (
    "GQA + bf16 + ALiBi + added mask + causal + sink + lse",
    "MQA + live + ALiBi + bool mask + softcap + window + split-KV",
    "MQA + f16 + position + paged + split key + sink + lse + split-KV",
    "f16 + paged + added mask + bool mask + window + split-KV",
    "GQA + position + split key + bool mask + softcap + window + lse",
    "f16 + live + split key + ALiBi + softcap + causal + lse",
    "bf16 + position + bool mask + window + sink + split-KV",
    "MQA + bf16 + live + paged + split key + added mask + softcap + window",
    "MQA + paged + ALiBi + softcap + causal + split-KV",
    "GQA + f16 + live + added mask + bool mask + softcap + causal + sink",
    "position + added mask + softcap + window + sink + lse",
    "GQA + paged + split key + added mask + sink + split-KV",
    "MQA + bf16 + position + paged + ALiBi + added mask + sink + lse",
    # What real models are: a prompt and a decode of each.
    "GQA + causal",
    "GQA + live + paged",
    "GQA + live + paged + softcap + split-KV",
    "split key + live + paged + split-KV",
    "GQA + sink + window + bf16",
)
# Compute units, and cores, that no row of the table fills, so that a decode is split.
MANY_UNITS, MANY_CORES = 64, 16


def row_of(name: str) -> Row:
    return row(*name.split(" + "))


def together(names: tuple[str, ...]) -> bool:
    return all(why_apart(*pair) is None for pair in itertools.combinations(names, 2))


def compiled(target: str, r: Row) -> Program:
    limits = device_of(target).limits if target != "oracle" else None
    if r.is_split and limits is not None:
        limits = replace(limits, compute_units=MANY_UNITS, cores=MANY_CORES)
    return compile_on(target, graph_of(r), limits=limits)


def check_row(target: str, r: Row, seed: int = 0) -> None:
    program = compiled(target, r)
    (eqn,) = [e for e in eqns_of(program.entries["main"].final) if e.op == "attention"]
    check_fields(r, eqn)
    told = program.explain()
    assert "did: attention q" in told
    assert "declined" not in told
    splits = [
        n
        for s in program.entries["main"].plan.steps
        for name, n in s.request.schedule.params
        if name == "splits"
    ]
    assert not r.is_split or max(splits) > 1, told
    feed = feed_of(r, seed)
    got = run_program(program, feed)
    for mine, theirs in zip(got.outputs, wanted(r, feed), strict=True):
        assert_within(mine, theirs, "attention", str(r))


@pytest.mark.parametrize("name", ROWS)
@on()
def test_each_row_is_fused_and_right(target: str, name: str):
    check_row(target, row_of(name))


LIVE = (
    "GQA + live + paged",
    "GQA + live + paged + softcap + split-KV",
    "f16 + live + split key + ALiBi + softcap + causal + lse",
    "MQA + bf16 + live + paged + split key + added mask + softcap + window",
    "GQA + live + sink + lse + split-KV",
)


def poisoned(r: Row, feed: dict[str, np.ndarray], number: float) -> dict[str, np.ndarray]:
    """The feed with that number in every key and value row that no live position names: unused
    rows, a page's tail, pages nobody holds."""
    bad = {name: x.copy() for name, x in feed.items()}
    live = np.arange(r.keys) < (feed["at.pos"] + r.rows)[:, None]
    names = [n for n in ("at.k", "at.v", "at.shared") if n in feed]
    for name in names:
        rows = bad[name]
        if "paged" in r.names and name != "at.shared":
            dead = np.ones(r.slots, bool)
            dead[feed["at.read"][live]] = False
            rows[dead] = number
        else:
            rows.swapaxes(1, 2)[~live] = number
    return bad


@pytest.mark.parametrize("name", LIVE)
@on()
def test_what_no_length_reaches_changes_no_bit(target: str, name: str):
    r = row_of(name)
    feed = feed_of(r)
    if "window" not in r.names:  # a window ends where all keys do: few live ones would be outside
        feed["at.pos"] = np.asarray([r.keys // 2, 0][: r.batch], np.int32)
    program = compiled(target, r)
    clean = run_program(program, feed).outputs
    for number in (np.nan, np.inf, -np.inf):
        got = run_program(program, poisoned(r, feed, number)).outputs
        for mine, theirs in zip(got, clean, strict=True):
            np.testing.assert_array_equal(mine, theirs)


def test_every_pair_of_forms_is_in_a_row_or_has_its_reason():
    covered = {
        frozenset(pair)
        for name in ROWS
        for pair in itertools.combinations(row_of(name).all_names, 2)
    }
    for pair in itertools.combinations(FORMS, 2):
        assert (frozenset(pair) in covered) == (why_apart(*pair) is None), pair


def test_no_reason_keeps_apart_what_no_row_could_name():
    """Each group of APART holds forms of the table, and what is one of a group is listed once."""
    for groups in APART.values():
        assert {n for group in groups for n in group} <= set(FORMS)
    assert len(set(FORMS)) == len(FORMS) == sum(map(len, ONE_OF)) + 1 + len(ADDED)


def test_any_three_forms_fuse_together_and_mean_the_same():
    for names in itertools.combinations(FORMS, 3):
        if together(names):
            r = row(*names)
            got = rewritten(graph_of(r))
            check_fields(r, only(got))
            assert got.declined == (), r
            got.check(feed_of(r), 1e-5)


@st.composite
def drawn_rows(draw: st.DrawFn) -> Row:
    names = [draw(st.sampled_from(group)) for group in ONE_OF]
    for added in draw(st.lists(st.sampled_from(ADDED), max_size=len(ADDED), unique=True)):
        if together((*names, added)):
            names.append(added)
    return row(*names)


def check_drawn(target: str, most: int) -> None:
    @settings(max_examples=most, deadline=None)
    @given(drawn_rows(), st.integers(0, 3))
    def check(r: Row, seed: int) -> None:
        check_row(target, r, seed)

    check()


@on()
def test_drawn_rows_are_fused_and_right(target: str):
    """200 examples over the targets that a machine without a GPU of its own has."""
    check_drawn(target, 25)


@pytest.mark.fuzz
@on()
def test_many_drawn_rows_are_fused_and_right(target: str):
    """2,000 examples over the same targets."""
    check_drawn(target, 250)
