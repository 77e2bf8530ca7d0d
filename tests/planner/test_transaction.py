"""What stands under which word."""

from __future__ import annotations

from poot.ir.graph import Graph, Input, Slot, Var
from poot.ir.text import parse
from poot.passes.records import form_records
from poot.planner.entry import updatable
from poot.planner.order import phases_of
from poot.planner.steps import regions_of, updates_of
from poot.planner.transaction import Transaction, Words, Work
from poot.planner.words import WORD, Ids, copy_region
from tests.support.plans import LIMITS

TEXT = """
state v0: i32[8] "a" -> v4
state v10: i32[] "n" -> v12
slot  v1: i32[1] "x"
slot  v2: i32[] "at"
v4: i32[8] = dynamic_update_slice(v0, v1, v2) axis=0
{guard}
v12: i32[] = add(v10, v10)
out v1
"""
EARLY = "v5: i32[], v6: bool[] = index_guard(v2) hi=8 lo=0\nvalidate v6"
LATE = "v7: i32[8], v8: bool[8] = index_guard(v4) hi=9 lo=0\nvalidate v8"


def made(guard: str, fed: Var | None = None) -> tuple[list[Work], Words | None, Work]:
    """All work, the words, and the write of `a`."""
    graph: Graph = form_records(parse(TEXT.format(guard=guard)), LIMITS).graph
    in_place = updatable(graph)
    regions = regions_of(graph, lambda e: e.out.id in in_place)
    (write,) = [r for r in regions if updates_of(r)]
    writers = {write.outs[0].id}
    phases = phases_of(regions, graph.validations, writers)
    publish = [copy_region(graph.states[1][1], Var(90, graph.states[1][1].type))]
    tails = {graph.inputs[0].var.id: write.outs[0], write.outs[0].id: write.outs[0]}
    transaction = Transaction(phases, writers, graph.validations, fed, Ids(100))
    works, words = transaction.run(publish, tails)
    return works, words, next(w for w in works if w.region is write)


def test_nothing_stands_under_a_word_where_nothing_can_fail():
    works, words, write = made("")
    assert words is None
    assert write.ok is None
    assert all(w.ok is None for w in works)


def test_all_writes_stand_under_the_word_of_early_guards():
    works, words, write = made(EARLY)
    assert words is not None
    assert words.early == words.final == write.ok
    assert works[-1].ok == words.final  # the copy that writes a whole State
    assert works[-1].outs == (0,)
    assert words.undo == ()


def test_a_write_before_its_guard_is_kept_and_put_back_last():
    works, words, write = made(LATE)
    assert words is not None
    assert write.ok is None
    ((save, saved, out, back),) = words.undo
    assert (saved, out) == (write, 0)
    assert works.index(save) == works.index(write) - 1
    assert works[-1] is back
    assert back.ok == words.failed
    assert works[-3].ok == words.final  # the other State


def test_a_write_between_two_guards_stands_under_the_first_and_is_undone_for_the_second():
    _, words, write = made(f"{EARLY}\n{LATE}")
    assert words is not None
    assert write.ok == words.early != words.final
    assert len(words.undo) == 1


def test_slots_from_the_device_decide_where_no_guard_does():
    graph = parse(TEXT.format(guard=""))
    fed = Input(Var(80, WORD), "$ok", Slot()).var
    assert fed not in {i.var for i in graph.inputs}
    works, words, write = made("", fed)
    assert words is not None
    assert write.ok == words.final == fed
    assert len(works) == 3  # no launch decides: the word is there
