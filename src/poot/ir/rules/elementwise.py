"""Ops that work element by element. Binary ops broadcast as numpy does."""

from __future__ import annotations

from poot.errors import need
from poot.ir.dtypes import DTYPES, is_float, is_integer
from poot.ir.graph import TensorType
from poot.ir.ops import op

UNARY_FLOAT = (
    "neg",
    "exp",
    "log",
    "sqrt",
    "rsqrt",
    "recip",
    "sin",
    "cos",
    "tanh",
    "erf",
    "abs",
    "floor",
)
BINARY = ("add", "sub", "mul", "div", "max", "min", "rem")
COMPARE = ("eq", "ne", "lt", "le", "gt", "ge")
BITWISE = ("and", "or", "xor")
SHIFT = ("shl", "shr")

_MEANING = {
    "neg": "-x. i32 wraps.",
    "exp": "e to the x.",
    "log": "Natural logarithm; log(0) is -inf, of a negative NaN.",
    "sqrt": "Square root; of a negative NaN.",
    "rsqrt": "1 / sqrt(x).",
    "recip": "1 / x.",
    "sin": "Sine of x in radians.",
    "cos": "Cosine of x in radians.",
    "tanh": "Hyperbolic tangent.",
    "erf": "The error function.",
    "abs": "Magnitude. i32 wraps at its least value.",
    "floor": "The largest whole number not above x.",
    "add": "a + b. Integers wrap.",
    "sub": "a - b. Integers wrap.",
    "mul": "a * b. Integers wrap.",
    "div": "a / b. Integers truncate toward zero, and by zero give 0.",
    "max": "The larger; NaN if either is NaN.",
    "min": "The smaller; NaN if either is NaN.",
    "rem": "What a / b leaves, exactly, with the sign of a. By zero: 0 of integers, NaN of floats.",
    "eq": "a == b; false with NaN.",
    "ne": "a != b; true with NaN.",
    "lt": "a < b; false with NaN.",
    "le": "a <= b; false with NaN.",
    "gt": "a > b; false with NaN.",
    "ge": "a >= b; false with NaN.",
    "and": "Bitwise and; logical on bool.",
    "or": "Bitwise or; logical on bool.",
    "xor": "Bitwise exclusive or; logical on bool.",
    "shl": "a << (b & 31).",
    "shr": "a >> (b & 31): arithmetic on i32, logical on u32.",
}


def broadcast_shapes(*shapes: tuple[int, ...]) -> tuple[int, ...]:
    """The shape that all broadcast to, aligned at the right; an extent of 1 stretches."""
    if shapes and shapes.count(shapes[0]) == len(shapes):
        return shapes[0]
    if () in shapes:
        return broadcast_shapes(*[s for s in shapes if s])
    rank = max((len(s) for s in shapes), default=0)
    out: list[int] = []
    for axis in range(rank):
        seen = {s[axis - rank + len(s)] for s in shapes if axis - rank + len(s) >= 0} - {1}
        need(len(seen) <= 1, "shapes that broadcast", shapes=shapes)
        out.append(seen.pop() if seen else 1)
    return tuple(out)


def _unary(name: str) -> None:
    def rule(x: TensorType) -> TensorType:
        integers = name in ("neg", "abs") and x.dtype == "i32"
        need(
            is_float(x.dtype) or integers,
            "a float" if name not in ("neg", "abs") else "a float or i32",
            x=x,
        )
        return x

    rule.__doc__ = _MEANING[name]
    op(name, 1)(rule)


def _binary(name: str) -> None:
    def rule(a: TensorType, b: TensorType) -> TensorType:
        need(a.dtype == b.dtype, "operands of one dtype", a=a, b=b)
        need(is_float(a.dtype) or a.dtype in ("i32", "u32"), "floats, i32 or u32", a=a)
        return TensorType(a.dtype, broadcast_shapes(a.shape, b.shape))

    rule.__doc__ = _MEANING[name]
    op(name, 2)(rule)


def _compare(name: str) -> None:
    def rule(a: TensorType, b: TensorType) -> TensorType:
        need(a.dtype == b.dtype, "operands of one dtype", a=a, b=b)
        need(a.dtype in ("f32", "f16", "bf16", "i32", "u32", "bool"), "comparable operands", a=a)
        return TensorType("bool", broadcast_shapes(a.shape, b.shape))

    rule.__doc__ = _MEANING[name]
    op(name, 2)(rule)


def _bits(name: str) -> None:
    def rule(a: TensorType, b: TensorType) -> TensorType:
        need(a.dtype == b.dtype, "operands of one dtype", a=a, b=b)
        allowed = ("i32", "u32", "bool") if name in BITWISE else ("i32", "u32")
        need(a.dtype in allowed, " or ".join(allowed), a=a)
        return TensorType(a.dtype, broadcast_shapes(a.shape, b.shape))

    rule.__doc__ = _MEANING[name]
    op(name, 2)(rule)


for _name in UNARY_FLOAT:
    _unary(_name)
for _name in BINARY:
    _binary(_name)
for _name in COMPARE:
    _compare(_name)
for _name in BITWISE + SHIFT:
    _bits(_name)


@op("not", ins=1)
def not_(x: TensorType) -> TensorType:
    """Bitwise complement; logical on bool."""
    need(x.dtype in ("i32", "u32", "bool"), "i32, u32 or bool", x=x)
    return x


@op("select", ins=3)
def select(cond: TensorType, a: TensorType, b: TensorType) -> TensorType:
    """a where cond, else b; the other side is not read into the result, whatever it holds."""
    need(cond.dtype == "bool", "a bool condition", cond=cond)
    need(a.dtype == b.dtype, "branches of one dtype", a=a, b=b)
    return TensorType(a.dtype, broadcast_shapes(cond.shape, a.shape, b.shape))


@op("cast", ins=1, attrs=("dtype",))
def cast(x: TensorType, *, dtype: str) -> TensorType:
    """x in another dtype. Floats round to nearest even; float to integer truncates and saturates,
    NaN gives 0; integers wrap; to bool is x != 0."""
    need(dtype in DTYPES, "a known dtype", dtype=dtype)
    return TensorType(dtype, x.shape)


@op("bitcast", ins=1, attrs=("dtype",))
def bitcast(x: TensorType, *, dtype: str) -> TensorType:
    """The same bits under another dtype of the same size."""
    need(
        dtype in DTYPES and "bool" not in (dtype, x.dtype),
        "known dtypes other than bool",
        x=x,
        dtype=dtype,
    )
    need(DTYPES[dtype].nbytes == DTYPES[x.dtype].nbytes, "dtypes of one size", x=x, dtype=dtype)
    return TensorType(dtype, x.shape)


@op("index_guard", ins=1, attrs=("lo", "hi", "what"))
def index_guard(
    x: TensorType, *, lo: int, hi: int, what: str = ""
) -> tuple[TensorType, TensorType]:
    """(x clamped into lo..hi-1, witness): witness is true where lo <= x < hi held. `what` says in
    an error's words what is needed of x, where that is more than the bounds."""
    need(is_integer(x.dtype) and x.dtype == "i32", "an i32 operand", x=x)
    need(lo < hi, "lo < hi", lo=lo, hi=hi)
    return x, TensorType("bool", x.shape)
