"""Which eqns may share a launch: the first, forward step of forming regions.

Each eqn that can't be pulled (a matmul, a reduction, attention, an update in place) opens a group
or joins one. A pullable eqn joins the last group that its operands come from, where that group
could apply it at its store; else it opens one. Groups are numbered as they open, and an eqn's
number is never below its operands': so groups can run in the order of their numbers, whatever they
hold.

A tag says how a value's elements lie to its group's own: values of one tag in one group are applied
index by index. Values without a tag are read only by later groups.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from poot.ir.attrs import ints_attr
from poot.ir.graph import Eqn, Graph, State, Var
from poot.ir.transaction import is_conditional
from poot.ir.walk import results
from poot.limits import DeviceLimits
from poot.passes.regions.streams import stream_width, turned_pairs
from poot.passes.regions.table import ELEMENTWISE, UPDATES, is_pullable

SOURCE = -1  # the group of a value that only inputs decide, and of inputs
FULL, ROW = -1, -2  # tags in a group of reductions: an element of a row, or one a row
_MOST_MEMBERS = 64


class Group:
    """Eqns that may run as one launch. `elems` are those of its results, `rows` of its reductions;
    `takes` says whether more may join. `leaves` are the ids of what it reads at most, `outs` counts
    what it stores at least."""

    def __init__(self, anchor: str, elems: int, rows: int = 0, *, takes: bool = True) -> None:
        self.anchor = anchor
        self.elems = elems
        self.rows = rows
        self.takes = takes
        self.leaves = set[int]()
        self.outs = 1
        self.members = 0
        # Of products: terms of a piece where all stream alike, else 0; and which pairs of columns
        # a rotation turns, where one does.
        self.width = 0
        self.turns: tuple[int, object] | None = None
        self.tags: dict[object, int] = {}

    def tag(self, of: object) -> int:
        """The tag of a way in which elements lie, equal for equal ways."""
        return self.tags.setdefault(of, len(self.tags))


@dataclass(frozen=True, slots=True)
class Grouping:
    """For each eqn, by position, its group; groups by number; eqns that must be stored; and for
    each State id that is updated in place, the group that does it."""

    home: list[int]
    groups: list[Group]
    cut: set[int]
    updated: dict[int, int]
    in_place: set[int]
    tags: dict[int, int]


class Grouper:
    """The forward walk. `buffers` is how many operands and results a launch may have; `limits` say
    whether products stream."""

    def __init__(self, graph: Graph, buffers: int, limits: DeviceLimits | None = None) -> None:
        self.graph = graph
        self.limits = limits
        self.makers: dict[int, Eqn] = {}
        self.buffers = buffers
        self.out = Grouping([], [], set(), {}, set(), {})
        self.at: dict[int, int] = {}  # value id -> position of its eqn
        self.leaves: dict[int, frozenset[int]] = {}
        self.base: dict[
            int, int
        ] = {}  # value id -> the value it is computed from, element by element
        self.siblings: dict[object, int] = {}
        self.last_reader = {v.id: n for n, eqn in enumerate(graph.eqns) for v in eqn.ins}
        self.newest_reader: dict[int, int] = {}  # value id -> highest group so far
        self.results = {v.id for v in results(graph)}
        self.witnesses = {v.id for v in graph.validations}
        self.words = int(is_conditional(graph))  # a launch that writes State reads the step's word
        paired = {before.id for before, _ in graph.states}
        self.writable = {
            i.var.id for i in graph.inputs if isinstance(i.storage, State) and i.var.id in paired
        }
        for i in graph.inputs:
            self.leaves[i.var.id] = frozenset((i.var.id,))

    def run(self) -> Grouping:
        """The grouping of the whole graph."""
        for position, eqn in enumerate(self.graph.eqns):
            self._bound_leaves(eqn)
            home = self._home(position, eqn)
            self.out.home.append(home)
            if home != SOURCE:
                self.out.groups[home].members += 1
            for v in eqn.outs:
                self.at[v.id] = position
                self.makers[v.id] = eqn
            for v in eqn.ins:
                self.newest_reader[v.id] = max(home, self.newest_reader.get(v.id, home))
            self._note(eqn, home)
        return self.out

    def home_of(self, v: Var) -> int:
        """The group that computes v."""
        at = self.at.get(v.id)
        return SOURCE if at is None else self.out.home[at]

    def _home(self, position: int, eqn: Eqn) -> int:
        match eqn.op:
            case "matmul":
                return self._matmul(eqn)
            case "reduce":
                return self._reduce(eqn)
            case "attention" | "selected_attention":
                return self._anchor(eqn, "attention", eqn.outs[0].type.elems)
            case _ if eqn.op in UPDATES and self._may_overwrite(position, eqn):
                return self._update(position, eqn)
            case _ if is_pullable(eqn):
                return self._pullable(eqn)
            case _:
                group = self._open(Group("none", eqn.outs[0].type.elems, takes=False), eqn)
                return group

    def _open(self, group: Group, eqn: Eqn) -> int:
        group.leaves = set(self._reads(eqn.ins))
        group.outs = len(eqn.outs) + (self.words if eqn.op in UPDATES else 0)
        self.out.groups.append(group)
        return len(self.out.groups) - 1

    def _reads(self, ins: tuple[Var, ...]) -> frozenset[int]:
        if len(ins) == 1:
            return self.leaves[ins[0].id]
        return frozenset[int]().union(*[self.leaves[v.id] for v in ins])

    def _anchor(self, eqn: Eqn, anchor: str, elems: int) -> int:
        number = self._open(Group(anchor, elems), eqn)
        group = self.out.groups[number]
        for v in eqn.outs:
            self.out.tags[v.id] = group.tag(("own", v.type.shape))
        return number

    def _matmul(self, eqn: Eqn) -> int:
        """Joins the group of an earlier matmul over the same left operand, or opens one."""
        left, right = eqn.ins
        key = ("matmul", left.id, eqn.out.type.shape[:-1])
        width = 0 if self.limits is None else stream_width(self.makers, eqn, self.limits)
        sibling = self.siblings.get(key)
        if sibling is not None and self.home_of(right) < sibling:
            group = self.out.groups[sibling]
            leaves = group.leaves | self.leaves[right.id]
            fits = group.takes and len(leaves) + group.outs + 2 <= self.buffers
            if fits and not (group.turns and width != group.width):
                group.leaves = leaves
                group.outs += 1
                group.width = width if width == group.width else 0
                self.out.tags[eqn.out.id] = group.tag(("own", eqn.out.type.shape))
                return sibling
        number = self._anchor(eqn, "matmul", eqn.out.type.elems)
        self.siblings[key] = number
        self.out.groups[number].width = width
        return number

    def _reduce(self, eqn: Eqn) -> int:
        """Joins reductions over the same rows, of the same values or of results of theirs."""
        (x,), axes = eqn.ins, ints_attr(eqn, "axis")
        rank = len(x.type.shape)
        trails = axes == tuple(range(rank - len(axes), rank)) and len(axes) > 0
        rows = eqn.out.type.elems
        if not trails:
            number = self._open(Group("reduce", rows, rows), eqn)
            self.out.tags[eqn.out.id] = ROW
            return number
        key = ("reduce", self.base.get(x.id, x.id), x.type.elems, rows)
        home, number = self.home_of(x), None
        if self._holds_rows(home, x.type.elems, rows) and self.out.tags.get(x.id) == FULL:
            number = home
        elif home < self.siblings.get(key, SOURCE):
            number = self.siblings[key]
        if number is not None:
            group = self.out.groups[number]
            leaves = group.leaves | (set[int]() if number == home else self.leaves[x.id])
            if group.takes and len(leaves) + group.outs + 1 <= self.buffers:
                group.leaves = leaves
                self.out.tags[eqn.out.id] = ROW
                return number
        number = self._open(Group("reduce", x.type.elems, rows), eqn)
        self.siblings[key] = number
        self.out.tags[eqn.out.id] = ROW
        return number

    def _holds_rows(self, number: int, elems: int, rows: int) -> bool:
        """Whether that group's reductions are over so many rows of so many elements in all."""
        if number == SOURCE:
            return False
        group = self.out.groups[number]
        return group.anchor == "reduce" and (group.elems, group.rows) == (elems, rows)

    def _may_overwrite(self, position: int, eqn: Eqn) -> bool:
        """Whether an update may be done in place: its x is a State, or the update of one, that
        nothing reads later, and that it reads once."""
        x = eqn.ins[0]
        return (
            x.id in self.writable
            and self.last_reader[x.id] == position
            and eqn.ins.count(x) == 1
            and x.id not in self.results
        )

    def _update(self, position: int, eqn: Eqn) -> int:
        """An update in place: at the end of the group that computes what is written, or alone."""
        x, update = eqn.ins[:2]
        number = max(self.home_of(v) for v in eqn.ins)
        joins = (
            number != SOURCE
            and self.home_of(x) < number == self.home_of(update)
            and all(self.home_of(v) < number for v in eqn.ins[2:])
            and self.out.groups[number].anchor in ("none", "matmul")
            and update.id in self.out.tags
            and self.newest_reader.get(x.id, SOURCE) < number
            and self._fits(number, eqn)
        )
        if joins:
            self.out.groups[number].leaves |= self._reads(self._outside(eqn, number))
            self.out.groups[number].outs += self.words
        else:
            number = self._open(Group("none", update.type.elems), eqn)
        self.out.updated[x.id] = number
        self.out.in_place.add(position)
        self.writable.add(eqn.out.id)
        return number

    def _pullable(self, eqn: Eqn) -> int:
        number = max((self.home_of(v) for v in eqn.ins), default=SOURCE)
        guards = any(v.id in self.witnesses for v in eqn.outs)
        if number == SOURCE and not guards:
            return SOURCE
        if not guards and number != SOURCE and self._fits(number, eqn):
            tag = self._tag(eqn, number)
            if tag is not None:
                group = self.out.groups[number]
                if group.anchor != "none":
                    group.leaves |= self._reads(self._outside(eqn, number))
                self.out.tags.update((v.id, tag) for v in eqn.outs)
                return number
        group = Group("none", eqn.outs[0].type.elems, takes=not guards)
        number = self._open(group, eqn)
        if not guards:
            self.out.tags.update((v.id, 0) for v in eqn.outs)
        return number

    def _outside(self, eqn: Eqn, number: int) -> tuple[Var, ...]:
        return tuple(v for v in eqn.ins if self.home_of(v) != number)

    def _fits(self, number: int, eqn: Eqn) -> bool:
        """Whether the group is open to more, and its buffers are enough with what eqn reads."""
        group = self.out.groups[number]
        if not group.takes or group.members >= _MOST_MEMBERS:
            return False
        if group.anchor == "none" and eqn.op not in UPDATES:
            return True  # what it reads is bounded by _bound_leaves
        leaves = group.leaves | self._reads(self._outside(eqn, number))
        words = self.words if eqn.op in UPDATES else 0
        return len(leaves) + group.outs + words <= self.buffers

    def _tag(self, eqn: Eqn, number: int) -> int | None:
        """The tag of eqn's result where the group can apply eqn at its store, else None."""
        group = self.out.groups[number]
        inside = [v for v in eqn.ins if self.home_of(v) == number]
        tags = [self.out.tags.get(v.id) for v in inside]
        elems = eqn.outs[0].type.elems
        if None in tags:
            return None
        if group.anchor == "none":
            return 0 if elems == group.elems else None
        if group.anchor == "reduce":
            return _row_tag(eqn, group, inside, tags)
        if len(set(tags)) != 1 or any(v.type.elems != elems for v in inside):
            return None
        if eqn.op == "rope":
            return tags[0] if self._turns(eqn, group, inside) else None
        if eqn.op == "transpose":
            return _turned(group, tags[0], eqn)
        return tags[0] if eqn.op in ELEMENTWISE or eqn.op in ("reshape", "broadcast") else None

    def _turns(self, eqn: Eqn, group: Group, inside: list[Var]) -> bool:
        """Whether a group of products that stream can turn its pairs of columns."""
        if group.anchor != "matmul" or not group.width or inside != [eqn.ins[0]]:
            return False
        pairs = turned_pairs(self.makers, eqn), eqn.attr("interleaved")
        if not pairs[0] or group.turns not in (None, pairs):
            return False
        group.turns = pairs
        return True

    def _note(self, eqn: Eqn, home: int) -> None:
        """Books what eqn's results are computed from."""
        own = home != SOURCE and self.out.groups[home].anchor != "none"
        stored = own or not is_pullable(eqn)
        reads = frozenset[int]() if stored else self._reads(eqn.ins)
        for v in eqn.outs:
            self.leaves[v.id] = frozenset((v.id,)) if stored else reads
        if eqn.op in ELEMENTWISE and eqn.ins:
            alike = [v for v in eqn.ins if v.type.elems == eqn.outs[0].type.elems]
            first = (alike or eqn.ins)[0]
            self.base[eqn.outs[0].id] = self.base.get(first.id, first.id)

    def _bound_leaves(self, eqn: Eqn) -> None:
        """Has operands stored, the one of most leaves first, until what eqn reads fits a launch."""
        words = self.words if eqn.op in UPDATES else 0
        most = self.buffers - len(eqn.outs) - words - (0 if is_pullable(eqn) else 1)
        while len(self._reads(eqn.ins)) > most:
            widest = max(eqn.ins, key=lambda v: len(self.leaves[v.id]))
            if len(self.leaves[widest.id]) == 1:
                return
            self.out.cut.add(self.at[widest.id])
            for v in self.graph.eqns[self.at[widest.id]].outs:
                self.leaves[v.id] = frozenset((v.id,))


def _moves(eqn: Eqn) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """A transpose's shape and permutation without the axes of extent 1."""
    shape, perm = eqn.ins[0].type.shape, ints_attr(eqn, "perm")
    wide = [a for a, n in enumerate(shape) if n != 1]
    return tuple(shape[a] for a in wide), tuple(wide.index(p) for p in perm if p in wide)


def _turned(group: Group, tag: int | None, eqn: Eqn) -> int | None:
    shape, perm = _moves(eqn)
    return tag if perm == tuple(sorted(perm)) else group.tag((tag, shape, perm))


def _row_tag(eqn: Eqn, group: Group, inside: list[Var], tags: list[int | None]) -> int | None:
    """The tag of eqn's result in a group of reductions: an element of a row, or one a row."""
    elems = eqn.outs[0].type.elems
    if eqn.op == "transpose":
        perm = _moves(eqn)[1]
        return tags[0] if perm == tuple(sorted(perm)) else None
    if eqn.op == "reshape":
        return tags[0]
    if eqn.op not in ELEMENTWISE and eqn.op != "broadcast":
        return None
    if elems == group.rows and all(t == ROW for t in tags):
        return ROW if all(v.type.elems == elems for v in inside) else None
    if elems != group.elems:
        return None
    shape = eqn.outs[0].type.shape
    fits = all(
        v.type.elems == elems if t == FULL else _is_row_of(v.type.shape, shape, group.rows)
        for v, t in zip(inside, tags, strict=True)
    )
    return FULL if fits else None


def _is_row_of(shape: tuple[int, ...], full: tuple[int, ...], rows: int) -> bool:
    """Whether a value of that shape, broadcast to `full`, gives each row its own element."""
    padded = (1,) * (len(full) - len(shape)) + shape
    last = max((a + 1 for a, n in enumerate(padded) if n != 1), default=0)
    return padded[:last] == full[:last] and math.prod(padded) == rows
