"""How often a lane goes round the loops of a kernel, at the most: some drivers stop counting.

A bound is read off literals and the instructions that make a register: a minimum with a literal, a
lane, sums and products of such. A loop that runs to `start + n` makes n trips. A register that
isn't known counts as 0 where it is a start or a summand of one. Where a loop's end isn't known, or
a loop runs while a condition holds, its body counts once.
"""

from __future__ import annotations

from collections.abc import Callable

from poot.codegen.kir.nodes import For, If, Ins, Kernel, Lit, Operand, Roles, Stmt, While

Most = int | None


def most_trips(kernel: Kernel) -> int:
    """Trips of all loops together, each loop's last look at its condition counted as one."""
    return _Counter(kernel.threads).block(kernel.body)


class _Counter:
    """The registers seen so far: what each is at most, and the instruction that makes it."""

    def __init__(self, threads: int) -> None:
        self.threads = threads
        self.bounds: dict[str, Most] = {}
        self.made: dict[str, Ins] = {}

    def block(self, body: tuple[Stmt, ...]) -> int:
        return sum(self.trips(stmt) for stmt in body)

    def trips(self, stmt: Stmt) -> int:
        if isinstance(stmt, Ins):
            self.note(stmt)
            return 0
        if isinstance(stmt, If):
            return self.block(stmt.then) + self.block(stmt.orelse)
        if isinstance(stmt, While):
            return 2 + self.block((*stmt.head, *stmt.body))
        if isinstance(stmt, Roles):
            return max((self.block(r.body) for r in stmt.roles), default=0)
        assert isinstance(stmt, For)
        span = self.span(stmt.stop, stmt.start)
        step = stmt.step.value if isinstance(stmt.step, Lit) else 1
        count = 1 if span is None else max(0, -(-span // max(int(step), 1)))
        stop = self.most(stmt.stop)
        self.bounds[stmt.var.name] = None if stop is None else max(stop - 1, 0)
        return count * (1 + self.block(stmt.body)) + 1

    def most(self, operand: Operand) -> Most:
        """The largest value of a whole-number operand, where that is known."""
        if isinstance(operand, Lit):
            return int(operand.value) if isinstance(operand.value, int) else None
        return self.bounds.get(operand.name)

    def span(self, stop: Operand, start: Operand) -> Most:
        """At most how far `stop` lies past `start`, where that is known."""
        first = int(start.value) if isinstance(start, Lit) else 0
        end = self.most(stop)
        found: list[Most] = [None if end is None else end - first]
        made = None if isinstance(stop, Lit) else self.made.get(stop.name)
        if made is not None and made.op == "min":
            found += [self.span(a, start) for a in made.args]
        if made is not None and made.op == "add":
            a, b = made.args
            found += [self.most(b)] if self.begins(start, a) else []
            found += [self.most(a)] if self.begins(start, b) else []
        return _least_known(found)

    def begins(self, start: Operand, base: Operand) -> bool:
        """Whether start is base, or base and something more."""
        if isinstance(start, Lit) or isinstance(base, Lit):
            return False
        made = self.made.get(start.name)
        return start == base or (made is not None and made.op == "add" and base in made.args)

    def note(self, ins: Ins) -> None:
        """Books what an instruction says of its result. A mutable register is never known."""
        if len(ins.dsts) != 1 or ins.dsts[0].mutable:
            return
        name, rule = ins.dsts[0].name, _RULES.get(ins.op)
        self.made[name] = ins
        if ins.op == "lane":
            self.bounds[name] = self.threads - 1
        else:
            self.bounds[name] = rule([self.most(a) for a in ins.args]) if rule else None


def _least_known(args: list[Most]) -> Most:
    return min((a for a in args if a is not None), default=None)


def _largest(args: list[Most]) -> Most:
    known = [a for a in args if a is not None]
    return max(known) if len(known) == len(args) else None


def _both(combine: Callable[[int, int], Most]) -> Callable[[list[Most]], Most]:
    def rule(args: list[Most]) -> Most:
        a, b = args
        return None if a is None or b is None else combine(a, b)

    return rule


_RULES: dict[str, Callable[[list[Most]], Most]] = {
    "min": _least_known,
    "max": _largest,
    "select": lambda args: _largest(args[1:]),
    "set": lambda args: args[0],
    "add": _both(lambda a, b: a + b),
    "mul": _both(lambda a, b: a * b if min(a, b) >= 0 else None),
    "shr": _both(lambda a, b: a >> b if 0 <= b < 32 else None),
    "div": _both(lambda a, b: max(a, 0) // b if b > 0 else None),
}
