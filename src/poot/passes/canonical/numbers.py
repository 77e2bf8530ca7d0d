"""Constants: folded, written once as one number, on the right; and what they leave unchanged.

before   c = const(2.0)[3]  y = mul(c, x)      after   c = const(2.0)[]  y = mul(x, c)
before   y = div(x, const(4.0))                after   y = mul(x, const(0.25))
before   y = mul(x, const(1.0))                after   x
Every rule is exact, NaN, infinities and signed zeros included: the bits do not change.
"""

from __future__ import annotations

import math

import numpy as np

from poot.ir.dtypes import DTYPES, is_float
from poot.ir.graph import Const, Eqn, Graph, TensorType, Var
from poot.ir.rules.elementwise import broadcast_shapes
from poot.ir.walk import next_id, rebuild
from poot.oracle import ROWS, At
from poot.passes.engine import Scope, rule
from poot.passes.facts import number_of
from poot.passes.regions.table import ELEMENTWISE

_PLAIN = tuple(sorted(ELEMENTWISE - {"index_guard"}))
_MIRRORED = {
    **{op: op for op in ("add", "mul", "max", "min", "and", "or", "xor", "eq", "ne")},
    "lt": "gt",
    "gt": "lt",
    "le": "ge",
    "ge": "le",
}


def numbers_from_arrays(graph: Graph) -> Graph:
    """The graph with every Const input of one repeated element read as a `const` eqn."""
    read = {v.id for e in graph.eqns for v in e.ins}
    eqns: list[Eqn] = []
    mapping: dict[int, Var] = {}
    fresh = next_id(graph)
    for i in graph.inputs:
        if not isinstance(i.storage, Const) or i.var.id not in read or not i.var.type.elems:
            continue
        value = _repeated(i.var.type, i.storage.data)
        if value is None:
            continue
        type = i.var.type
        out = Var(fresh, type)
        fresh += 1
        attrs = (("dtype", type.dtype), ("shape", type.shape), ("value", value))
        eqns.append(Eqn("const", (), (out,), attrs))
        mapping[i.var.id] = out
    return rebuild(graph, (*eqns, *graph.eqns), mapping) if mapping else graph


def _repeated(type: TensorType, data: bytes) -> float | int | bool | None:
    """The number that an array's bytes repeat, or None."""
    held = DTYPES[type.dtype].numpy
    if data[held.itemsize :] != data[: -held.itemsize]:
        return None
    value = np.frombuffer(data, held, 1)[0].item()
    return None if value != value else value  # a NaN's sign and payload have no number


@rule(*_PLAIN)
def fold(eqn: Eqn, scope: Scope) -> Var | None:
    """An op of constants is a constant, as the oracle computes it."""
    makers: list[Eqn] = []
    for v in eqn.ins:
        maker = scope.producer(v)
        if maker is None or maker.op != "const":
            return None
        makers.append(maker)
    if not makers:
        return None
    ins = tuple(TensorType(v.type.dtype, ()) for v in eqn.ins)
    out = eqn.out.type
    at = At(ins, (TensorType(out.dtype, ()),), False, lambda _body, _ins: ())
    values = [m.attr("value") for m in makers]
    with np.errstate(all="ignore"):
        arrays = [
            np.asarray(v).astype(DTYPES[t.dtype].numpy) for v, t in zip(values, ins, strict=True)
        ]
        got = np.asarray(ROWS[eqn.op](at, *arrays, **dict(eqn.attrs)))
    value = got.item()
    if value != value:
        return None  # a NaN's sign and payload have no number
    return scope.emit("const", shape=out.shape, dtype=out.dtype, value=value)


@rule("reshape", "broadcast", "transpose", "slice")
def move_number(eqn: Eqn, scope: Scope) -> Var | None:
    """A constant that moves is a constant."""
    maker = scope.producer(eqn.ins[0])
    if maker is None or maker.op != "const":
        return None
    out = eqn.out.type
    return scope.emit("const", shape=out.shape, dtype=out.dtype, value=maker.attr("value"))


@rule(*_PLAIN)
def stretch_at_the_op(eqn: Eqn, scope: Scope) -> Var | None:
    """Operands that the op would stretch by itself are not stretched before it, and a constant is
    one number."""
    ins = list(eqn.ins)
    for n, v in enumerate(eqn.ins):
        ins[n] = _before_stretch(scope, v)
        if ins[n] is v:
            continue
        if broadcast_shapes(*(x.type.shape for x in ins)) != eqn.out.type.shape:
            ins[n] = v
    changed = [n for n, v in enumerate(eqn.ins) if ins[n] is not v]
    if not changed:
        return None
    for n in changed:
        maker = scope.producer(eqn.ins[n])
        if maker is not None and maker.op == "const":
            dtype = eqn.ins[n].type.dtype
            ins[n] = scope.emit("const", shape=(), dtype=dtype, value=maker.attr("value"))
    return scope.emit(eqn.op, *ins, **dict(eqn.attrs))


def _before_stretch(scope: Scope, v: Var) -> Var:
    """v before it was stretched; for a constant a stand-in of its dtype and shape []."""
    maker = scope.producer(v)
    if maker is None:
        return v
    if maker.op == "broadcast":
        return maker.ins[0]
    if maker.op == "const" and v.type.shape:
        return Var(v.id, TensorType(v.type.dtype, ()))
    if maker.op == "reshape":
        x = maker.ins[0]
        lead = len(v.type.shape) - len(x.type.shape)
        if lead > 0 and v.type.shape == (1,) * lead + x.type.shape:
            return x
    return v


@rule(*_MIRRORED)
def constant_right(eqn: Eqn, scope: Scope) -> Var | None:
    """Of an op that can be mirrored, the constant stands right."""
    a, b = eqn.ins
    if not _is_const(scope, a) or _is_const(scope, b):
        return None
    return scope.emit(_MIRRORED[eqn.op], b, a)


def _is_const(scope: Scope, v: Var) -> bool:
    maker = scope.producer(v)
    return maker is not None and maker.op == "const"


@rule("mul", "div", "add", "sub", "and", "or", "max", "min")
def neutral(eqn: Eqn, scope: Scope) -> Var | None:
    """x * 1, x / 1, x - 0, x + -0 (of integers x + 0), x and true, x or false, max(x, x),
    max(x, -inf), min(x, inf). Where a bool was stretched over more, it is so still."""
    x, y = eqn.ins
    is_bool = x.type.dtype == eqn.out.type.dtype == "bool"
    if x.type != eqn.out.type and not is_bool:
        return None
    number = number_of(scope, y)
    if number is None:
        is_same = eqn.op in ("max", "min") and x == y
        return x if is_same else None
    floats, zero = is_float(x.type.dtype), number == 0.0
    is_minus = math.copysign(1.0, number) < 0
    nothing = {
        "mul": number == 1.0,
        "div": number == 1.0,
        "add": zero and (is_minus or not floats),
        "sub": zero and not is_minus,
        "and": x.type.dtype == "bool" and number == 1.0,
        "or": zero and not floats,
        "max": floats and number == -math.inf,
        "min": floats and number == math.inf,
    }
    if not nothing[eqn.op]:
        return None
    if x.type == eqn.out.type:
        return x
    return scope.emit("broadcast", x, shape=eqn.out.type.shape)


@rule("div")
def multiply_by_power(eqn: Eqn, scope: Scope) -> Var | None:
    """x / 2^n is x * 2^-n, bit for bit, where 2^-n is a normal number of the dtype."""
    by = number_of(scope, eqn.ins[1])
    dtype = eqn.out.type.dtype
    if by is None or not is_float(dtype) or not math.isfinite(by) or by == 0.0:
        return None
    if abs(math.frexp(by)[0]) != 0.5:
        return None
    smallest = 2.0**-14 if dtype in ("f16", "f8e4m3") else 2.0**-126
    if not smallest <= abs(1.0 / by) <= 1.0 / smallest or dtype == "f8e4m3":
        return None
    number = scope.emit("const", shape=(), dtype=dtype, value=1.0 / by)
    if broadcast_shapes(eqn.ins[0].type.shape, ()) != eqn.out.type.shape:
        return None
    return scope.emit("mul", eqn.ins[0], number)


@rule("select")
def a_bool_itself(eqn: Eqn, scope: Scope) -> Var | None:
    """select(c, true, false) is c, and select(c, false, true) is not c."""
    cond, a, b = eqn.ins
    if eqn.out.type.dtype != "bool" or not eqn.out.type.elems:
        return None
    numbers = number_of(scope, a), number_of(scope, b)
    if numbers not in ((1.0, 0.0), (0.0, 1.0)):
        return None
    got = cond if numbers[0] else scope.emit("not", cond)
    shape = eqn.out.type.shape
    return got if got.type.shape == shape else scope.emit("broadcast", got, shape=shape)


@rule("ne", "eq")
def of_a_cast_bool(eqn: Eqn, scope: Scope) -> Var | None:
    """Whether a bool cast to a number is not 0 is that bool; whether it is 0, its negation."""
    made = scope.producer(eqn.ins[0])
    if made is None or made.op != "cast" or number_of(scope, eqn.ins[1]) != 0.0:
        return None
    held = made.ins[0]
    if held.type.dtype != "bool" or held.type.shape != eqn.out.type.shape:
        return None
    return held if eqn.op == "ne" else scope.emit("not", held)


NUMBERS = (
    fold, move_number, stretch_at_the_op, constant_right, neutral, multiply_by_power,
    a_bool_itself, of_a_cast_bool,
)  # fmt: skip
