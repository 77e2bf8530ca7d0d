"""The rewrite engine: named rules over a graph, in one forward sweep.

A rule looks at one eqn and at what produced its operands, and hands back the value to use instead,
built with `Scope.emit`. What it emits is offered to the rules in turn, so a sweep ends with no rule
left to fire: every producer a rule sees is in its final form. Eqns whose values nobody reads are
dropped, and equal eqns become one. Time is linear in eqns plus rewrites; nothing recurses.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

import numpy as np

from poot.errors import PassError
from poot.ir.build import make_eqn
from poot.ir.graph import Eqn, Graph, Input, Var
from poot.ir.walk import next_id, use_counts
from poot.passes.cse import Key, key_of
from poot.passes.dce import dce

RuleFn = Callable[[Eqn, "Scope"], "Var | tuple[Var, ...] | None"]

# Rewrites allowed per eqn before the rules are held to go round in circles.
_REWRITES_PER_EQN = 32
_MOST_SWEEPS = 16


@dataclass(frozen=True, slots=True)
class Rule:
    """A named rewrite of the eqns of some ops. `fn` returns what to use instead, or None."""

    name: str
    ops: tuple[str, ...]
    fn: RuleFn


def rule(*ops: str) -> Callable[[RuleFn], Rule]:
    """Makes a Rule of a function, for eqns of the named ops."""

    def make(fn: RuleFn) -> Rule:
        return Rule(fn.__name__, ops, fn)

    return make


@dataclass(frozen=True, slots=True)
class Note:
    """What a pass did or declined, for people. `kind` is "did" or "declined", `loc` the user's
    line."""

    kind: str
    what: str
    loc: str = ""


class Scope:
    """What a rule may ask and do: producers, use counts, the graph's inputs; emit and decline."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.notes: list[Note] = []
        self.fired: dict[str, int] = {}
        self.fresh: list[Eqn] = []
        self.known: dict[int, np.ndarray | None] = {}  # by id: what `values_of` computed
        self._made: dict[int, Eqn] = {}
        self._first: dict[Key, Eqn] = {}
        self._uses = use_counts(graph)
        self._forward: dict[int, Var] = {}
        self._inputs: dict[int, Input] = {i.var.id: i for i in graph.inputs}
        self._next = next_id(graph)
        self._loc = ""
        self._shared: list[int] = []

    def producer(self, var: Var) -> Eqn | None:
        """The finished eqn that makes var, or None for an input."""
        return self._made.get(var.id)

    def input(self, var: Var) -> Input | None:
        """The graph input that var is, or None."""
        return self._inputs.get(var.id)

    def uses(self, var: Var) -> int:
        """How many operands, outputs and states read var now."""
        return self._uses.get(var.id, 0)

    def is_read_once(self, var: Var) -> bool:
        """Whether var has one reader. Where it has more now and one in the end, the sweep is made
        again, so that it does not matter which of them went first."""
        if self.uses(var) != 1:
            self._shared.append(var.id)
            return False
        return True

    @property
    def is_settled(self) -> bool:
        """Whether no answer of `is_read_once` would be another now."""
        return all(self._uses.get(id, 0) != 1 for id in self._shared)

    def emit_all(self, op: str, *ins: Var, **attrs: object) -> tuple[Var, ...]:
        """A new eqn's outs, at the source line of the eqn under rewrite."""
        eqn = make_eqn(op, ins, self._next, attrs, self._loc)
        self._next += len(eqn.outs)
        self.fresh.append(eqn)
        return eqn.outs

    def emit(self, op: str, *ins: Var, **attrs: object) -> Var:
        """The only out of a new eqn."""
        (out,) = self.emit_all(op, *ins, **attrs)
        return out

    def decline(self, what: str, loc: str = "") -> None:
        """Records why something that looked right stays as it is."""
        self.notes.append(Note("declined", what, loc or self._loc))

    def did(self, what: str, loc: str = "") -> None:
        self.notes.append(Note("did", what, loc or self._loc))

    def current(self, var: Var) -> Var:
        """What stands for var now."""
        seen: list[int] = []
        while var.id in self._forward:
            seen.append(var.id)
            var = self._forward[var.id]
        for old in seen[:-1]:
            self._forward[old] = var
        return var

    def _resolved(self, eqn: Eqn) -> Eqn:
        if not any([v.id in self._forward for v in eqn.ins]):
            return eqn
        ins = tuple([self.current(v) for v in eqn.ins])
        return Eqn(eqn.op, ins, eqn.outs, eqn.attrs, eqn.loc)

    def _release(self, ins: Iterable[Var]) -> None:
        """Takes one reader from each var, and from the operands of whatever that leaves unread."""
        stack = list(ins)
        while stack:
            var = stack.pop()
            left = self._uses[var.id] = self._uses.get(var.id, 0) - 1
            made = self._made.get(var.id) if left == 0 else None
            if made is not None and not any(self._uses.get(o.id) for o in made.outs):
                for out in made.outs:
                    del self._made[out.id]
                self._first.pop(key_of(made), None)
                stack.extend(made.ins)

    def _replace(self, eqn: Eqn, by: tuple[Var, ...], name: str) -> None:
        """Books a rewrite: every reader of eqn's outs reads `by` from now on."""
        if name:
            self.fired[name] = self.fired.get(name, 0) + 1
        for fresh in self.fresh:
            for var in fresh.ins:
                self._uses[var.id] = self._uses.get(var.id, 0) + 1
        for old, new in zip(eqn.outs, by, strict=True):
            if old.type != new.type:
                raise PassError(f"{name} made {new.type} of {eqn.op}'s {old.type}", eqn.loc)
            new = self.current(new)
            self._uses[new.id] = self._uses.get(new.id, 0) + self._uses.pop(old.id, 0)
            self._forward[old.id] = new
        self._release(eqn.ins)

    def sweep(self, rules: tuple[Rule, ...]) -> list[Eqn]:
        """The eqns with every rule applied for as long as one fires."""
        table: dict[str, list[Rule]] = {}
        for r in rules:
            for op in r.ops:
                table.setdefault(op, []).append(r)
        none: list[Rule] = []
        pending, done = list(reversed(self.graph.eqns)), list[Eqn]()
        budget = 1024 + _REWRITES_PER_EQN * len(pending)
        while pending:
            eqn = pending.pop()
            if not any([self._uses.get(o.id) for o in eqn.outs]):
                self._release(eqn.ins)
                continue
            eqn = self._resolved(eqn)
            if not self._fire(eqn, table.get(eqn.op, none)):
                if self._keep(eqn):
                    done.append(eqn)
                continue
            budget -= 1
            if budget < 0:
                raise PassError(f"rules do not settle: {', '.join(sorted(self.fired))}", eqn.loc)
            pending.extend(reversed(self.fresh))
        return done

    def _keep(self, eqn: Eqn) -> bool:
        """Takes eqn as it is; or, where an equal one was taken, uses that and says false."""
        earlier = self._first.setdefault(key_of(eqn), eqn)
        if earlier is eqn:
            for out in eqn.outs:
                self._made[out.id] = eqn
            return True
        self.fresh = []
        self._replace(eqn, earlier.outs, "")
        return False

    def _fire(self, eqn: Eqn, rules: list[Rule]) -> bool:
        """Tries each rule in turn; true if one gave another value."""
        self._loc = eqn.loc
        for r in rules:
            if self.fresh:
                self.fresh = []
            got = r.fn(eqn, self)
            if got is not None:
                self._replace(eqn, (got,) if isinstance(got, Var) else got, r.name)
                return True
        return False


@dataclass(frozen=True, slots=True)
class Outcome:
    """A graph after a pass: what fired how often, and the notes taken."""

    graph: Graph
    fired: tuple[tuple[str, int], ...] = ()
    notes: tuple[Note, ...] = ()


def rewrite(graph: Graph, rules: tuple[Rule, ...]) -> Outcome:
    """Applies the rules everywhere and drops what nobody reads. What stays keeps its number, so
    that an eqn no rule touched is the same object before and after.

    Raises PassError where the rules never settle, or where one changes a value's type."""
    fired: dict[str, int] = {}
    notes: list[Note] = []
    for _ in range(_MOST_SWEEPS):
        scope = Scope(graph)
        graph = _swept(graph, scope, rules)
        notes = [*(n for n in notes if n.kind == "did"), *scope.notes]
        for name, n in scope.fired.items():
            fired[name] = fired.get(name, 0) + n
        if scope.is_settled:
            break
    return Outcome(graph, tuple(sorted(fired.items())), tuple(notes))


def _swept(graph: Graph, scope: Scope, rules: tuple[Rule, ...]) -> Graph:
    eqns = scope.sweep(rules)
    swept = replace(
        graph,
        eqns=tuple(eqns),
        outputs=tuple(scope.current(v) for v in graph.outputs),
        states=tuple((i, scope.current(o)) for i, o in graph.states),
        validations=tuple(scope.current(v) for v in graph.validations),
    )
    return dce(swept)


def apply(rules: tuple[Rule, ...], graph: Graph) -> Graph:
    """The graph after `rewrite`."""
    return rewrite(graph, rules).graph
