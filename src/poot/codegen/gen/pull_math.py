"""Pull rows of the ops that compute: unary, binary, comparisons, bits, select, casts, index_guard,
rope."""

from __future__ import annotations

from collections.abc import Callable
from math import isfinite

from poot.codegen.gen import math
from poot.codegen.gen.index import Coords, Index
from poot.codegen.gen.math import INF_BITS
from poot.codegen.gen.pull import Pull, Steps, pull_row, stretched
from poot.codegen.kir.build import KernelBuilder, Val
from poot.ir.attrs import bool_attr, int_attr
from poot.ir.dtypes import is_float
from poot.ir.graph import Eqn, Var

Unary = Callable[[KernelBuilder, Val], Val]
Binary = Callable[[KernelBuilder, Val, Val], Val]


def _i32_abs(k: KernelBuilder, x: Val) -> Val:
    return k.select(x < 0, -x, x)


def _sqrt(k: KernelBuilder, x: Val) -> Val:
    """The op where x >= 0 or NaN; NaN below, which not every target says of its own."""
    return k.select(x < 0.0, math.nan(k), k.op("sqrt", x))


def _rsqrt(k: KernelBuilder, x: Val) -> Val:
    return k.select(x < 0.0, math.nan(k), k.op("rsqrt", x))


# op -> (on floats, on integers, whether a narrow float's result must be rounded)
_UNARY: dict[str, tuple[Unary, Unary | None, bool]] = {
    "neg": (lambda k, x: -x, lambda k, x: -x, False),
    "abs": (lambda k, x: k.op("abs", x), _i32_abs, False),
    "floor": (lambda k, x: k.op("floor", x), None, False),
    "exp": (math.exp, None, True),
    "log": (math.log, None, True),
    "sqrt": (_sqrt, None, True),
    "rsqrt": (_rsqrt, None, True),
    "recip": (lambda k, x: k.lit(1.0) / x, None, True),
    "sin": (math.sin, None, True),
    "cos": (math.cos, None, True),
    "tanh": (math.tanh, None, True),
    "erf": (math.erf, None, True),
}

_BINARY: dict[str, tuple[Binary, Binary, bool]] = {
    "add": (lambda k, a, b: a + b, lambda k, a, b: a + b, True),
    "sub": (lambda k, a, b: a - b, lambda k, a, b: a - b, True),
    "mul": (lambda k, a, b: a * b, lambda k, a, b: a * b, True),
    "div": (lambda k, a, b: a / b, math.int_div, True),
    "max": (lambda k, a, b: k.op("nanmax", a, b), lambda k, a, b: k.op("max", a, b), False),
    "min": (lambda k, a, b: k.op("nanmin", a, b), lambda k, a, b: k.op("min", a, b), False),
    "rem": (math.float_rem, math.int_rem, True),
}

_BOOL_COMPARE: dict[str, Binary] = {
    "eq": lambda k, a, b: ~(a ^ b),
    "ne": lambda k, a, b: a ^ b,
    "lt": lambda k, a, b: ~a & b,
    "le": lambda k, a, b: ~a | b,
    "gt": lambda k, a, b: a & ~b,
    "ge": lambda k, a, b: a | ~b,
}

_BITS: dict[str, Binary] = {
    "and": lambda k, a, b: a & b,
    "or": lambda k, a, b: a | b,
    "xor": lambda k, a, b: a ^ b,
    "shl": lambda k, a, b: a << (b & 31),
    "shr": lambda k, a, b: a >> (b & 31),
}


@pull_row(*_UNARY)
def unary(p: Pull, eqn: Eqn, n: int, coords: Coords) -> Steps:
    x = yield eqn.ins[0], coords
    on_floats, on_integers, rounds = _UNARY[eqn.op]
    dtype = eqn.out.type.dtype
    if is_float(dtype):
        value = on_floats(p.k, x)
        return p.numbers.rounded(value, dtype) if rounds else value
    assert on_integers is not None
    return on_integers(p.k, x)


@pull_row(*_BINARY)
def binary(p: Pull, eqn: Eqn, n: int, coords: Coords) -> Steps:
    a = yield eqn.ins[0], stretched(eqn.ins[0].type, coords)
    b = yield eqn.ins[1], stretched(eqn.ins[1].type, coords)
    on_floats, on_integers, rounds = _BINARY[eqn.op]
    dtype = eqn.out.type.dtype
    if is_float(dtype):
        value = on_floats(p.k, a, b)
        lost = _taken_for_a_number(p, eqn, a, b)
        if lost is not None and lost.literal is not None:
            value = value if isfinite(lost.literal) else math.nan(p.k)
        elif lost is not None:
            value = p.k.select((math.bits(p.k, lost) & INF_BITS).eq(INF_BITS), math.nan(p.k), value)
        return p.numbers.rounded(value, dtype) if rounds else value
    return on_integers(p.k, a, b)


def _taken_for_a_number(p: Pull, eqn: Eqn, a: Val, b: Val) -> Val | None:
    """The operand whose infinity or NaN a driver may lose: SPIR-V lets it take a - a, a + -a and
    a * 0 for 0, as Mesa's does."""
    match eqn.op:
        case "sub" if a.operand == b.operand:
            return a
        case "add" if _is_negated(p, eqn.ins[0], eqn.ins[1]):
            return a
        case "add" if _is_negated(p, eqn.ins[1], eqn.ins[0]):
            return b
        case "mul" if b.literal == 0:
            return a
        case "mul" if a.literal == 0:
            return b
        case _:
            return None


def _is_negated(p: Pull, x: Var, y: Var) -> bool:
    """Whether y is -x."""
    maker = p.maker(y)
    return maker is not None and maker.op == "neg" and maker.ins[0].id == x.id


@pull_row(*_BOOL_COMPARE)
def compare(p: Pull, eqn: Eqn, n: int, coords: Coords) -> Steps:
    a = yield eqn.ins[0], stretched(eqn.ins[0].type, coords)
    b = yield eqn.ins[1], stretched(eqn.ins[1].type, coords)
    if eqn.ins[0].type.dtype == "bool":
        return _BOOL_COMPARE[eqn.op](p.k, a, b)
    return p.k.op(eqn.op, a, b)


@pull_row(*_BITS)
def bitwise(p: Pull, eqn: Eqn, n: int, coords: Coords) -> Steps:
    a = yield eqn.ins[0], stretched(eqn.ins[0].type, coords)
    b = yield eqn.ins[1], stretched(eqn.ins[1].type, coords)
    return _BITS[eqn.op](p.k, a, b)


@pull_row("not")
def complement(p: Pull, eqn: Eqn, n: int, coords: Coords) -> Steps:
    x = yield eqn.ins[0], coords
    return ~x


@pull_row("select")
def select(p: Pull, eqn: Eqn, n: int, coords: Coords) -> Steps:
    cond = yield eqn.ins[0], stretched(eqn.ins[0].type, coords)
    if cond.literal is not None:
        chosen = eqn.ins[1] if cond.literal else eqn.ins[2]
        value = yield chosen, stretched(chosen.type, coords)
        return value
    a = yield eqn.ins[1], stretched(eqn.ins[1].type, coords)
    b = yield eqn.ins[2], stretched(eqn.ins[2].type, coords)
    return p.k.select(cond, a, b)


@pull_row("cast")
def cast(p: Pull, eqn: Eqn, n: int, coords: Coords) -> Steps:
    x = yield eqn.ins[0], coords
    return p.numbers.cast(x, eqn.ins[0].type.dtype, eqn.out.type.dtype)


@pull_row("bitcast")
def bitcast(p: Pull, eqn: Eqn, n: int, coords: Coords) -> Steps:
    x = yield eqn.ins[0], coords
    return p.numbers.bitcast(x, eqn.ins[0].type.dtype, eqn.out.type.dtype)


@pull_row("index_guard")
def index_guard(p: Pull, eqn: Eqn, n: int, coords: Coords) -> Steps:
    x = yield eqn.ins[0], coords
    lo, hi = int_attr(eqn, "lo"), int_attr(eqn, "hi")
    if n == 1:
        return (x >= lo) & (x <= hi - 1)
    return p.k.op("min", p.k.op("max", x, lo), hi - 1)


@pull_row("rope")
def rope(p: Pull, eqn: Eqn, n: int, coords: Coords) -> Steps:
    """The element's own pair, rotated. One rounding at the end for a narrow dtype."""
    k, ix = p.k, p.indexer
    x, cos, sin = eqn.ins
    half, at = cos.type.shape[-1], coords[-1]
    is_turned = ix.below(at, 2 * half)
    own = yield x, coords
    if half == 0 or is_turned.literal is False:
        return own
    bounded = at if at.high < 2 * half else ix.clamp(ix.value(at), 2 * half)
    if bool_attr(eqn, "interleaved"):
        pair, side = ix.divmod(bounded, 2)
        is_first = ix.below(side, 1)
        partner = _either(p, is_first, bounded + 1, bounded + -1, 2 * half)
    else:
        is_first = ix.below(bounded, half)
        pair = _either(p, is_first, bounded, bounded + -half, half)
        partner = _either(p, is_first, bounded + half, bounded + -half, 2 * half)
    other = yield x, (*coords[:-1], partner)
    angle = stretched(cos.type, (*coords[:-1], pair))
    c = yield cos, angle
    s = yield sin, angle
    turned = own * c + other * k.select(is_first, -s, s)
    turned = p.numbers.rounded(turned, x.type.dtype)
    return k.select(is_turned, turned, own)


def _either(p: Pull, cond: Val, a: Index, b: Index, extent: int) -> Index:
    """a where cond else b, known to lie below extent."""
    if cond.literal is not None:
        return a if cond.literal else b
    ix = p.indexer
    return ix.atom(p.k.select(cond, ix.value(a), ix.value(b)), extent)
