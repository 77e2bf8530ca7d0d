"""The slots of a unit whose keys are those of listed blocks.

Slot j * ratio + i is key i of the j-th listed block; behind the list come the keys that are always
visited. Every subgroup finds a list's end by itself, with no barrier.
"""

from __future__ import annotations

from dataclasses import dataclass

from poot.codegen.gen.attention.grouped.shape import WARP, Form
from poot.codegen.gen.attention.grouped.team import Team, input_name, quotient
from poot.codegen.gen.index import ZERO
from poot.codegen.gen.selection.visits import always, candidates, limit_of
from poot.codegen.kir.build import Val
from poot.ir.attrs import int_attr

# Ids that one load of a lane takes, and loads in flight.
_VECTOR = 4
_UNROLL = 4


@dataclass(frozen=True, slots=True)
class Visit:
    """What the slots of a unit stand for, in mutable registers: slots of its list, the first key
    that is always visited, and the row's limit."""

    listed: Val
    start: Val
    limit: Val

    @staticmethod
    def fresh(team: Team) -> Visit:
        return Visit(team.count(0), team.count(0), team.count(0))

    def fields(self) -> tuple[Val, ...]:
        return (self.listed, self.start, self.limit)

    def find(self, team: Team, row: Val, head: Val) -> Val:
        """Sets the registers for a unit; how many slots it has. Uniform in a subgroup."""
        k, parts = team.k, team.form.parts
        ratio = int_attr(parts.eqn, "ratio")
        at = team.job.indexer.atom(k.copy(row), parts.batch)
        own = candidates(team.job, parts.eqn, parts.at["positions"], (at, ZERO))
        start = k.op("min", own, -(-parts.keys // ratio)) * ratio
        limit = limit_of(team.job, parts, at, ZERO)
        listed = _end_of_list(team, _list_at(team, row, head)) * ratio
        for register, value in zip(self.fields(), (listed, start, limit), strict=True):
            k.set(register, value)
        rest = k.op("min", k.op("max", limit - start, 0), always(parts.eqn).reach(ratio))
        return k.op("min", listed + rest, team.form.most)

    def key(self, team: Team, row: Val, head: Val, slot: Val) -> Val:
        """The key of a slot, or -1 where there is none or the row does not visit it."""
        k, parts = team.k, team.form.parts
        ratio, most = int_attr(parts.eqn, "ratio"), parts.at["ids"].type.shape[3]
        place = quotient(k, slot, ratio)
        first = k.load(_name(team), _list_at(team, row, head) + k.op("min", place, most - 1))
        own = first * ratio + (slot - place * ratio)
        beyond = slot - self.listed
        is_own = beyond < 0
        key = k.select(is_own, own, self.start + beyond)
        is_beyond = beyond < always(parts.eqn).reach(ratio)
        is_there = (key >= 0) & (key < self.limit) & (is_own | is_beyond)
        return k.select(is_there, key, team.number(-1))


def _name(team: Team) -> str:
    name = input_name(team.job, team.form.parts.at["ids"])
    assert name is not None, "lists are an input of the step's"
    return name


def list_of(form: Form, head: Val) -> Val | int:
    """Which of the Hs lists is that of a unit's query heads."""
    lists, parts = form.parts.at["ids"].type.shape[1], form.parts
    if lists == 1:
        return 0
    if lists == form.sets:
        return head
    assert lists == parts.kv_heads, (lists, form)
    return quotient(head.k, head, form.cuts)


def _list_at(team: Team, row: Val, head: Val) -> Val:
    """Where the unit's list starts among all ids."""
    lists, most = (team.form.parts.at["ids"].type.shape[n] for n in (1, 3))
    return (row * lists + list_of(team.form, head)) * most


def _end_of_list(team: Team, first: Val) -> Val:
    """How many ids stand before the list's first -1."""
    k, name = team.k, _name(team)
    most = team.form.parts.at["ids"].type.shape[3]
    end = team.count(most)
    width = _VECTOR if most % _VECTOR == 0 else 1
    base = k.copy(first)
    with k.for_(team.lane * width, most, WARP * width, unroll=_UNROLL) as i:
        ids = k.load(name, base + i, width)
        for n in range(width):
            id_ = k.extract(ids, n) if width > 1 else ids
            k.set(end, k.op("min", end, k.select(id_ < 0, i + n, team.number(most))))
    return k.op("subgroup_reduce", k.copy(end), kind="min", width=WARP)
