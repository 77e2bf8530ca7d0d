"""Which lists are proved to be of candidates, each once."""

from __future__ import annotations

import pytest

import poot
from poot import ops
from poot.ir.text import parse, show
from poot.limits import profile
from poot.passes.canonicalize import canonicalize
from poot.passes.engine import Rule, rewrite
from poot.passes.selection.lists import candidates_of, unlisted
from poot.passes.selection.match import fuse_selection

LIMITS = profile("lavapipe")


def answer(fn, *specs, edit=lambda text: text):
    """candidates_of the list that fn gives, negated so that there is an eqn to ask at."""
    graph = poot.trace(lambda *x: -fn(*x), specs)
    graph = canonicalize(parse(edit(show(graph))), LIMITS).graph
    graph = fuse_selection(graph, LIMITS).graph
    declared, got = frozenset(v.id for v in graph.validations), []
    rewrite(
        graph,
        (Rule("ask", ("neg",), lambda e, s: got.append(candidates_of(s, e.ins[0], declared))),),
    )
    return got[-1]


IDS, AT = poot.slot((2, 1, 3, 4), "i32"), poot.slot((2, 3), "i32", range=(0, 40))
SCORES = poot.slot((2, 1, 3, 9), "f32")


def guarded(ids, at):
    return ops.checked_blocks(ids, at, 4, 10)


def test_a_ranking_proves_its_list():
    count = answer(lambda s, at: ops.block_topk(s, at, 3, 4), SCORES, AT)
    assert (count.ratio, count.place.total) == (4, 1)
    count = answer(lambda s, at: ops.block_topk(s, at, 3, 4, "own"), SCORES, AT)
    assert count.place.total == 0


def test_a_declared_guard_proves_a_list():
    count = answer(guarded, IDS, AT)
    assert (count.ratio, count.place.total) == (4, 1)


@pytest.mark.parametrize(
    "old, new, words",
    [
        ("validate", "validate v6\n#", "no declared validation"),
        ("hi=0", "hi=1", "a guard of something else"),
    ],
)
def test_other_guards_prove_nothing(old, new, words):
    def edit(text):
        lines = []
        for line in text.splitlines():
            if line.startswith("validate") and old == "validate":
                line = line.rsplit(",", 1)[0]
            lines.append(line if old == "validate" else line.replace(old, new))
        return "\n".join(lines)

    assert words in answer(guarded, IDS, AT, edit=edit)


def test_ids_as_they_come_are_no_proved_list():
    assert "write ops.checked_blocks" in answer(lambda ids, at: ids + at[0, 0], IDS, AT)


def test_a_list_is_found_behind_its_end():
    def ended(ids, at):
        slot = ops.iota((1, 1, 1, 4), 3)
        end = ops.min(ops.where(ids < 0, slot, 4), 3, True)
        return ops.where(slot < end, ids, -1)

    graph, got = canonicalize(poot.trace(lambda *x: -ended(*x), (IDS, AT)), LIMITS).graph, []
    rewrite(graph, (Rule("ask", ("neg",), lambda e, s: got.append(unlisted(s, e.ins[0]))),))
    assert got[-1][1]
    assert got[-1][0].id == graph.inputs[0].var.id
