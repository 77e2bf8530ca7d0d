"""Whether a graph is one: the checks that run before and after every pass.

The builder can't make a bad eqn, but a pass can: it moves, drops and replaces them.
"""

from __future__ import annotations

from typing import NoReturn, cast

from poot.errors import TypeRuleError, VerifyError
from poot.ir.dtypes import DTYPES, is_integer
from poot.ir.graph import Const, Eqn, Graph, Input, Slot, State, Var
from poot.ir.ops import out_types
from poot.ir.text import show_eqn
from poot.ir.transaction import is_record


def verify(graph: Graph) -> None:
    """Raises VerifyError, naming the eqn and the user's line, unless all of this holds.

    Each id is bound once and read only after; each eqn's outs are as its rule gives them;
    attributes are sorted; outputs, states and validations are bound; a state pair starts at a State
    input, each at one pair, and keeps its type; validations are bool, or records (i32[3]); names of
    inputs are unique; a constant has its type's bytes; a slot with a range is of integers; the body
    of a region is itself such a graph, without states or validations, and its updates pair an out
    with an in of one type."""
    bound: dict[int, Var] = {}
    names: set[str] = set()
    for i in graph.inputs:
        _check_input(i, names)
        _bind(i.var, bound, f"input {i.name!r}", "")
    for eqn in graph.eqns:
        _check_eqn(eqn, bound)
    for what, vs in (("output", graph.outputs), ("validation", graph.validations)):
        for v in vs:
            _need(bound.get(v.id) == v, f"{what} {v} is not bound")
    for v in graph.validations:
        good = v.type.dtype == "bool" or is_record(v)
        _need(good, f"validation {v} is {v.type}, not bool and no record")
    _check_states(graph, bound)


def _need(claim: bool, what: str, loc: str = "") -> None:
    if not claim:
        raise VerifyError(what, loc)


def _check_input(i: Input, names: set[str]) -> None:
    _need(i.name not in names, f"two inputs are called {i.name!r}")
    names.add(i.name)
    type = i.var.type
    known = type.dtype in DTYPES and all(n >= 0 for n in type.shape)
    _need(known, f"input {i.name!r} needs a known dtype and extents of 0 or more: {type}")
    match i.storage:
        case Const(data):
            want = type.elems * DTYPES[type.dtype].numpy.itemsize
            _need(len(data) == want, f"constant {i.name!r} of {type} has {len(data)} bytes")
        case Slot(_, (lo, hi)):
            _need(
                is_integer(type.dtype) and lo < hi,
                f"slot {i.name!r} needs integers and lo < hi for its range: {type}, {lo}..{hi}",
            )
        case _:
            pass


def _bind(var: Var, bound: dict[int, Var], what: str, loc: str) -> None:
    _need(var.id not in bound, f"{var} is bound twice, the second time by {what}", loc)
    bound[var.id] = var


def _fail(eqn: Eqn, why: str) -> NoReturn:
    raise VerifyError(f"{why}: {show_eqn(eqn)}", eqn.loc)


def _check_eqn(eqn: Eqn, bound: dict[int, Var]) -> None:
    for v in eqn.ins:
        if bound.get(v.id) != v:
            found = f", which is bound as {bound[v.id].type}" if v.id in bound else ""
            _fail(eqn, f"{eqn.op} reads {v}: {v.type} before it is bound{found}")
    keys = [key for key, _ in eqn.attrs]
    if keys != sorted(set(keys)):
        _fail(eqn, f"{eqn.op} needs its attributes sorted and each once")
    try:
        types = out_types(eqn.op, tuple(v.type for v in eqn.ins), eqn.attrs, eqn.loc)
    except TypeRuleError as e:
        _fail(eqn, e.message)
    if types != tuple(v.type for v in eqn.outs) or not types:
        given = ", ".join(map(str, types)) or "nothing"
        _fail(eqn, f"{eqn.op} gives {given} by its rule")
    for v in eqn.outs:
        _bind(v, bound, eqn.op, eqn.loc)
    for key, value in eqn.attrs:
        if isinstance(value, Graph):
            _check_body(eqn, key, value)


def _check_body(eqn: Eqn, key: str, body: Graph) -> None:
    try:
        verify(body)
    except VerifyError as e:
        raise VerifyError(f"in {key} of {eqn.op} -> {eqn.outs[0]}: {e.message}", e.loc) from None
    if body.states or body.validations:
        _fail(eqn, f"{key} of {eqn.op} has states or validations; they belong outside")
    pairs = cast("tuple[tuple[int, int], ...]", eqn.attr("updates", ()))  # the op table's kind
    for out, source in pairs:
        inside = 0 <= out < len(eqn.outs) and 0 <= source < len(eqn.ins)
        if not inside or eqn.outs[out].type != eqn.ins[source].type:
            _fail(eqn, f"{eqn.op} needs updates of an out and an in of one type: {(out, source)}")


def _check_states(graph: Graph, bound: dict[int, Var]) -> None:
    names = {i.var: i.name for i in graph.inputs if isinstance(i.storage, State)}
    seen: set[Var] = set()
    for before, after in graph.states:
        _need(before in names, f"state pair {before} -> {after} starts at no State input")
        name = names[before]
        _need(before not in seen, f"state {name!r} has two new values")
        seen.add(before)
        _need(bound.get(after.id) == after, f"the new value {after} of state {name!r} is not bound")
        same = before.type == after.type
        _need(same, f"state {name!r} is {before.type} and its new value {after.type}")
