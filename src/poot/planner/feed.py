"""Slots from the device: the launches that check their words and clamp them into their ranges.

A feed runs before its entry point where a slot was given as a device array. It leaves a record for
each slot, the slots clamped (so that what counts on their ranges stays inside its buffers), and one
word: whether all of them held. State is written under that word.
"""

from __future__ import annotations

from poot.ir.build import Builder
from poot.ir.graph import Graph, Slot, State, Var
from poot.ir.transaction import fed_inputs, is_conditional
from poot.passes.records import record_of
from poot.planner.words import WORD, all_hold

OK = "$ok"  # the input, and resident, that holds the word; no name of a user's has a dollar sign
FEED = "$feed"  # what the name of an entry point's feed ends in


def feed_of(graph: Graph) -> Graph | None:
    """The feed of an entry point: a State for each slot that may come from the device, by its name,
    and one for the word where State is written under it. Outputs are the records, in order. None
    where no slot needs a check."""
    slots = fed_inputs(graph)
    if not slots:
        return None
    build = Builder()
    pairs: list[tuple[Var, Var]] = []
    records: list[Var] = []
    for i in slots:
        assert isinstance(i.storage, Slot)
        assert i.storage.range is not None
        lo, hi = i.storage.range

        def number(value: int) -> Var:
            return build.one("const", shape=(), dtype="i32", value=value)

        x = build.input(i.var.type, i.name, State())
        least, most = number(lo), number(hi - 1)
        held = build.one("and", build.one("ge", x, least), build.one("le", x, most))
        records.append(record_of(build, held, x))
        clamped = build.one("min", build.one("max", x, least), most)
        pairs.append((x, clamped))
    if is_conditional(graph):
        word = build.input(WORD, OK, State())
        pairs.append((word, all_hold(build, tuple(records), None)))
    return build.graph(tuple(records), tuple(pairs))
