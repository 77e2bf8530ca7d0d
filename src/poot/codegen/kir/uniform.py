"""How each register differs between the lanes that run together: not at all, by a stride, or
anyhow.

A register is `base + stride * lane` with one base for all lanes: stride 0 is uniform, None is
varying. What control that differs between lanes sets, and what is read outside of that control, is
varying. A register's class covers all its writes. The cost is linear in the kernel: a register is
revisited only when an operand's class falls.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from poot.codegen.kir.nodes import For, Frag, If, Ins, Kernel, Lit, Operand, Reg, Roles, Stmt, While


@dataclass(frozen=True, slots=True)
class Spread:
    """`stride` as above; the base is a multiple of `divisor` (0: the base is 0); `is_natural`:
    never negative.
    """

    stride: int | None
    divisor: int = 1
    is_natural: bool = False

    @property
    def kind(self) -> str:
        return "varying" if self.stride is None else "linear" if self.stride else "uniform"

    @property
    def is_uniform(self) -> bool:
        return self.stride == 0


UNIFORM = Spread(0)
VARYING = Spread(None)


def _join(a: Spread | None, b: Spread | None) -> Spread | None:
    if a is None or b is None:
        return a or b
    stride = a.stride if a.stride == b.stride else None
    return Spread(stride, math.gcd(a.divisor, b.divisor), a.is_natural and b.is_natural)


def _literal(lit: Lit) -> Spread:
    if isinstance(lit.value, int) and lit.type.lanes == 1:
        return Spread(0, abs(int(lit.value)), lit.value >= 0)
    return UNIFORM


@dataclass(frozen=True, slots=True)
class _Control:
    """A block's control: what chooses it, and the block around. `conds` are If's or While's
    condition, or For's three bounds; none for a role.
    """

    parent: _Control | None
    depth: int
    stmt: If | For | While | Roles
    block: int

    @property
    def conds(self) -> tuple[Operand, ...]:
        if isinstance(self.stmt, For):
            return self.stmt.start, self.stmt.stop, self.stmt.step
        return () if isinstance(self.stmt, Roles) else (self.stmt.cond,)


def _common(a: _Control | None, b: _Control | None) -> _Control | None:
    """The innermost block that holds both."""
    while a is not b:
        if b is None or (a is not None and a.depth >= b.depth):
            assert a is not None
            a = a.parent
        else:
            b = b.parent
    return a


class Uniformity:
    """The classes of a kernel's registers over runs of `lanes` lanes."""

    def __init__(self, kernel: Kernel, lanes: int) -> None:
        self.kernel = kernel
        self.lanes = lanes
        self._spread: dict[str, Spread | None] = {}
        self._defs: dict[str, list[tuple[Ins | For, _Control | None]]] = {}
        self._home: dict[str, _Control | None] = {}
        self._users: dict[str, dict[str, None]] = {}
        self._collect(kernel.body, None)
        self._settle()

    # What the rest of the compiler asks

    def of(self, operand: Operand) -> Spread:
        """The class of a register or number."""
        if isinstance(operand, Lit):
            return _literal(operand)
        return self._spread.get(operand.name) or UNIFORM

    def diverges(self, stmt: If | For | While | Roles) -> bool:
        """Whether the lanes may part at a statement: take other branches, or leave a loop at other
        trips.
        """
        if isinstance(stmt, Roles):
            width = self.kernel.subgroup or self.lanes
            return self.lanes > width
        if not isinstance(stmt, For):
            return not self.of(stmt.cond).is_uniform
        start, stop, step = (self.of(x) for x in (stmt.start, stmt.stop, stmt.step))
        return not step.is_uniform or start.stride is None or start.stride != stop.stride

    # One walk to collect

    def _meet(self, reg: Reg, at: _Control | None) -> None:
        self._home[reg.name] = _common(self._home[reg.name], at) if reg.name in self._home else at

    def _define(self, reg: Reg, by: Ins | For, at: _Control | None) -> None:
        self._meet(reg, at)
        self._defs.setdefault(reg.name, []).append((by, at))

    def _use(self, operand: Operand, at: _Control | None) -> None:
        if isinstance(operand, Reg):
            self._meet(operand, at)

    def _collect(self, body: tuple[Stmt, ...], at: _Control | None) -> None:
        depth = 0 if at is None else at.depth + 1
        for stmt in body:
            if isinstance(stmt, Ins):
                for operand in stmt.args:
                    self._use(operand, at)
                for dst in stmt.dsts:
                    self._define(dst, stmt, at)
            elif isinstance(stmt, If):
                self._use(stmt.cond, at)
                self._collect(stmt.then, _Control(at, depth, stmt, 0))
                self._collect(stmt.orelse, _Control(at, depth, stmt, 1))
            elif isinstance(stmt, For):
                for operand in (stmt.start, stmt.stop, stmt.step):
                    self._use(operand, at)
                inside = _Control(at, depth, stmt, 0)
                self._define(stmt.var, stmt, inside)
                self._collect(stmt.body, inside)
            elif isinstance(stmt, While):
                inside = _Control(at, depth, stmt, 0)
                self._collect(stmt.head, inside)
                self._use(stmt.cond, inside)
                self._collect(stmt.body, inside)
            else:
                for number, role in enumerate(stmt.roles):
                    self._collect(role.body, _Control(at, depth, stmt, number))

    # The fixed point

    def _outside(self, name: str, at: _Control | None) -> list[_Control]:
        """The controls between a write and the block that holds every use of the register."""
        home, found = self._home[name], list[_Control]()
        while at is not home:
            assert at is not None
            found.append(at)
            at = at.parent
        return found

    def _settle(self) -> None:
        for name, defs in self._defs.items():
            for by, at in defs:
                operands = by.args if isinstance(by, Ins) else (by.start, by.step)
                conds = [c for control in self._outside(name, at) for c in control.conds]
                for operand in (*operands, *conds):
                    if isinstance(operand, Reg):
                        self._users.setdefault(operand.name, {})[name] = None
        queue, queued = deque(self._defs), set(self._defs)
        while queue:
            name = queue.popleft()
            queued.discard(name)
            now = self._evaluate(name)
            if now != self._spread.get(name):
                self._spread[name] = now
                fresh = [user for user in self._users.get(name, {}) if user not in queued]
                queue.extend(fresh)
                queued.update(fresh)

    def _evaluate(self, name: str) -> Spread | None:
        total = self._spread.get(name)
        for by, at in self._defs[name]:
            if any(self.diverges(c.stmt) for c in self._outside(name, at)):
                return VARYING
            total = _join(total, self._transfer(by))
        return total

    def _known(self, operand: Operand) -> Spread | None:
        return _literal(operand) if isinstance(operand, Lit) else self._spread.get(operand.name)

    def _transfer(self, by: Ins | For) -> Spread | None:
        if isinstance(by, For):
            start, step = self._known(by.start), self._known(by.step)
            if start is None or step is None:
                return None
            stride = start.stride if step.is_uniform else None
            is_natural = start.is_natural and step.is_natural
            return Spread(stride, math.gcd(start.divisor, step.divisor), is_natural)
        if by.op == "undef":
            return None
        if isinstance(by.dsts[0].type, Frag):
            return VARYING
        args = [self._known(a) for a in by.args]
        known = [a for a in args if a is not None]
        if len(known) < len(args):
            return None
        rule = _RULES.get(by.op)
        if rule is not None:
            return rule(self, by, known)
        return UNIFORM if all(a.is_uniform for a in known) else VARYING


Rule = Callable[[Uniformity, Ins, list[Spread]], Spread]


def _is_inside_subgroup(u: Uniformity) -> bool:
    width = u.kernel.subgroup
    return width is not None and width % u.lanes == 0


def _add(u: Uniformity, ins: Ins, args: list[Spread]) -> Spread:
    a, b = args
    sign = -1 if ins.op == "sub" else 1
    stride = None if a.stride is None or b.stride is None else a.stride + sign * b.stride
    is_natural = ins.op == "add" and a.is_natural and b.is_natural
    return _of_integer(ins, Spread(stride, math.gcd(a.divisor, b.divisor), is_natural))


def _of_integer(ins: Ins, spread: Spread) -> Spread:
    """Strides are of scalar integers; what else differs, varies."""
    is_integer = str(ins.dsts[0].type) in ("i32", "u32", "i64", "u64")
    return spread if is_integer or spread.is_uniform else VARYING


def _times(a: Spread, factor: int) -> Spread:
    stride = None if a.stride is None else a.stride * factor
    return Spread(stride, a.divisor * abs(factor), a.is_natural and factor >= 0)


def _number(operand: Operand) -> int | None:
    is_number = isinstance(operand, Lit) and isinstance(operand.value, int)
    return int(operand.value) if is_number and isinstance(operand, Lit) else None


def _mul(u: Uniformity, ins: Ins, args: list[Spread]) -> Spread:
    for operand, other in ((ins.args[1], args[0]), (ins.args[0], args[1])):
        factor = _number(operand)
        if factor is not None:
            return _of_integer(ins, _times(other, factor))
    a, b = args
    both = a.is_uniform and b.is_uniform
    return Spread(0 if both else None, a.divisor * b.divisor, a.is_natural and b.is_natural)


def _shl(u: Uniformity, ins: Ins, args: list[Spread]) -> Spread:
    bits = _number(ins.args[1])
    if bits is not None and 0 <= bits < 64:
        return _of_integer(ins, _times(args[0], 1 << bits))
    return UNIFORM if all(a.is_uniform for a in args) else VARYING


def _neg(u: Uniformity, ins: Ins, args: list[Spread]) -> Spread:
    return _of_integer(ins, _times(args[0], -1))


def _stays(u: Uniformity, a: Spread, by: int) -> bool:
    """Whether base + stride * lane lies between the same multiples of `by` as the base, in every
    lane: base and `by` are multiples of what the lanes' part never reaches.
    """
    return a.stride is not None and 0 <= a.stride * (u.lanes - 1) < math.gcd(a.divisor, by)


def _quotient(u: Uniformity, a: Spread, by: int, floors: bool) -> Spread:
    """a / by, by > 0: base and lane part are divided apart where that is exact."""
    if a.stride is not None and a.divisor % by == 0 and a.stride % by == 0:
        return Spread(a.stride // by, a.divisor // by, a.is_natural)
    if _stays(u, a, by) and (floors or a.is_natural):
        return Spread(0, a.divisor // by if a.divisor % by == 0 else 1, a.is_natural)
    return Spread(0 if a.is_uniform else None, 1, a.is_natural)


def _remainder(u: Uniformity, a: Spread, by: int, floors: bool) -> Spread:
    is_natural = a.is_natural or floors
    if a.stride is not None and a.divisor % by == 0 and a.stride % by == 0:
        return Spread(0, 0, True)
    if _stays(u, a, by) and is_natural:
        return Spread(a.stride, 0 if a.divisor % by == 0 else math.gcd(a.divisor, by), True)
    return Spread(0 if a.is_uniform else None, math.gcd(a.divisor, by), is_natural)


def _div(u: Uniformity, ins: Ins, args: list[Spread]) -> Spread:
    by = _number(ins.args[1])
    if by is not None and by > 0:
        divide = _quotient if ins.op == "div" else _remainder
        return _of_integer(ins, divide(u, args[0], by, False))
    both = all(a.is_uniform for a in args)
    return Spread(0 if both else None, 1, all(a.is_natural for a in args))


def _shr(u: Uniformity, ins: Ins, args: list[Spread]) -> Spread:
    bits = _number(ins.args[1])
    if bits is not None and 0 <= bits < 64:
        return _of_integer(ins, _quotient(u, args[0], 1 << bits, True))
    return UNIFORM if all(a.is_uniform for a in args) else VARYING


def _and(u: Uniformity, ins: Ins, args: list[Spread]) -> Spread:
    mask = _number(ins.args[1])
    is_integer = str(ins.dsts[0].type) != "bool"
    if is_integer and mask is not None and mask >= 0 and mask & (mask + 1) == 0:
        return _of_integer(ins, _remainder(u, args[0], mask + 1, True))
    both = all(a.is_uniform for a in args)
    return Spread(0 if both else None, 1, any(a.is_natural for a in args))


def _compare(u: Uniformity, ins: Ins, args: list[Spread]) -> Spread:
    """All lanes compare alike where both sides are multiples of what the lanes' part never reaches:
    `base + stride * lane < b` asks then only whether base < b."""
    if all(a.is_uniform for a in args):
        return UNIFORM
    x, bound = args if ins.op in ("lt", "ge") else args[::-1]
    unit = math.gcd(x.divisor, bound.divisor)
    if x.stride is None or not bound.is_uniform or x.stride < 0:
        return VARYING
    return UNIFORM if unit == 0 or x.stride * (u.lanes - 1) < unit else VARYING


def _min_max(u: Uniformity, ins: Ins, args: list[Spread]) -> Spread:
    a, b = args
    both_natural, one_natural = a.is_natural and b.is_natural, a.is_natural or b.is_natural
    is_natural = one_natural if ins.op == "max" else both_natural
    both = a.is_uniform and b.is_uniform
    return Spread(0 if both else None, math.gcd(a.divisor, b.divisor), is_natural)


def _select(u: Uniformity, ins: Ins, args: list[Spread]) -> Spread:
    joined = _join(args[1], args[2])
    assert joined is not None
    return joined if args[0].is_uniform else Spread(None, joined.divisor, joined.is_natural)


def _copy(u: Uniformity, ins: Ins, args: list[Spread]) -> Spread:
    return args[0]


_WIDTHS = {"i32": 32, "u32": 32, "i64": 64, "u64": 64}


def _convert(u: Uniformity, ins: Ins, args: list[Spread]) -> Spread:
    was, now = str(ins.args[0].type), str(ins.dsts[0].type)
    if was in _WIDTHS and now in _WIDTHS:
        keeps = _WIDTHS[now] >= _WIDTHS[was]
        return Spread(args[0].stride, args[0].divisor, args[0].is_natural and keeps)
    return UNIFORM if args[0].is_uniform else VARYING


def _lane(u: Uniformity, ins: Ins, args: list[Spread]) -> Spread:
    return Spread(1, 0 if u.lanes == u.kernel.threads else u.lanes, True)


def _id(u: Uniformity, ins: Ins, args: list[Spread]) -> Spread:
    return Spread(0, 1, True)


def _subgroup_id(u: Uniformity, ins: Ins, args: list[Spread]) -> Spread:
    return Spread(0 if _is_inside_subgroup(u) else None, 1, True)


def _subgroup_lane(u: Uniformity, ins: Ins, args: list[Spread]) -> Spread:
    if not _is_inside_subgroup(u):
        return Spread(None, 1, True)
    return Spread(1, 0 if u.lanes == u.kernel.subgroup else u.lanes, True)


def _load(u: Uniformity, ins: Ins, args: list[Spread]) -> Spread:
    is_same = args[0].is_uniform and ins.attr("cache") != "relaxed"
    return UNIFORM if is_same else VARYING


def _varying(u: Uniformity, ins: Ins, args: list[Spread]) -> Spread:
    return VARYING


def _same(u: Uniformity, ins: Ins, args: list[Spread]) -> Spread:
    return UNIFORM


def _same_in_subgroup(u: Uniformity, ins: Ins, args: list[Spread]) -> Spread:
    whole = ins.op != "subgroup_reduce" or ins.attr("width") == u.kernel.subgroup
    is_same = _is_inside_subgroup(u) and whole and all(a.is_uniform for a in args[1:])
    return UNIFORM if is_same or all(a.is_uniform for a in args) else VARYING


_RULES: dict[str, Rule] = {
    "add": _add,
    "sub": _add,
    "mul": _mul,
    "shl": _shl,
    "neg": _neg,
    "div": _div,
    "rem": _div,
    "shr": _shr,
    "and": _and,
    **dict.fromkeys(("lt", "le", "gt", "ge"), _compare),
    "min": _min_max,
    "max": _min_max,
    "select": _select,
    "set": _copy,
    "cast": _convert,
    "bitcast": _convert,
    "lane": _lane,
    "group_id": _id,
    "num_groups": _id,
    "subgroup_id": _subgroup_id,
    "subgroup_lane": _subgroup_lane,
    "load": _load,
    "atomic": _varying,
    "elect": _varying,
    "agree": _same,
    **dict.fromkeys(
        ("shuffle", "subgroup_broadcast", "subgroup_reduce", "vote_any", "vote_all", "ballot"),
        _same_in_subgroup,
    ),
}


def analyse(kernel: Kernel, lanes: int | None = None) -> Uniformity:
    """The classes over the whole workgroup, or over each aligned run of `lanes` lanes (a subgroup,
    a warpgroup).
    """
    return Uniformity(kernel, min(lanes or kernel.threads, kernel.threads))
