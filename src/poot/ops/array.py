"""The traced value: an Array stands for what a graph will hold, and records what is done to it.

Operators mean what they mean in numpy, with one difference: dtypes never change by themselves. A
Python or numpy scalar takes the other operand's dtype, if it can hold that number; a numpy array is
a Const."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias, cast

import numpy as np

from poot.errors import TraceError
from poot.ir.dtypes import DTYPES
from poot.ir.graph import TensorType, Var
from poot.ir.ranges import Known, input_interval, transfer
from poot.ops.indexing import select
from poot.ops.kinds import is_number, need_whole, whole, wholes
from poot.ops.operators import Operators
from poot.ops.record import Recorder, current, here, refuse
from poot.ops.scalars import constant

Scalar: TypeAlias = bool | int | float
Operand: TypeAlias = "Array | np.ndarray | np.generic | Scalar"
Axes: TypeAlias = int | Sequence[int] | None


class Array(Operators):
    """A value of a trace: `shape` and `dtype` are known, its elements are not.

    `interval` is what `ir.ranges` proves of an integer value.
    """

    __slots__ = ("interval", "recorder", "var")

    def __init__(self, recorder: Recorder, var: Var, interval: Known = None) -> None:
        self.recorder = recorder
        self.var = var
        self.interval = interval

    @property
    def type(self) -> TensorType:
        return self.var.type

    @property
    def shape(self) -> tuple[int, ...]:
        return self.var.type.shape

    @property
    def dtype(self) -> str:
        return self.var.type.dtype

    @property
    def ndim(self) -> int:
        return len(self.var.type.shape)

    @property
    def size(self) -> int:
        """How many elements."""
        return self.var.type.elems

    def __repr__(self) -> str:
        return f"Array({self.var}: {self.type})"

    def apply(self, op: str, a: object, b: object) -> Array:
        special = _SPECIAL.get(op)
        return special(a, b) if special else binary(op, a, b)

    def __neg__(self) -> Array:
        return emit("neg", self)

    def __abs__(self) -> Array:
        return emit("abs", self)

    def __invert__(self) -> Array:
        return emit("not", self)

    def __pow__(self, other: Array | int | float) -> Array:
        return power(self, other)

    # Shape.

    def __len__(self) -> int:
        if not self.shape:
            refuse("len()", "at least one axis", error=TraceError, value=self)
        return self.shape[0]

    def __iter__(self) -> Iterator[Array]:
        """The rows, unrolled. Raises TraceError on a value without axes."""
        if not self.shape:
            refuse(
                "iteration",
                "an axis, whose extent is known at trace time",
                error=TraceError,
                value=self,
            )
        return (self[i] for i in range(self.shape[0]))

    def __getitem__(self, index: object) -> Array:
        """numpy's basic indexing, and one i32 index array (proved inside its axis, as in
        `ops.take`)."""
        if not isinstance(index, tuple):
            return _getitem(self, (index,))
        return _getitem(self, cast("tuple[object, ...]", index))  # isinstance says no more

    def reshape(self, *shape: int | Sequence[int]) -> Array:
        """The same elements in row-major order; one extent may be -1."""
        return reshape(self, _ints("reshape", shape))

    def transpose(self, *perm: int | Sequence[int]) -> Array:
        """Axis i of the result is axis perm[i]; without perm, all axes reversed."""
        axes = _ints("transpose", perm) or tuple(reversed(range(self.ndim)))
        perm_ = tuple(normal_axis("transpose", a, self.ndim) for a in axes)
        return self if perm_ == tuple(range(self.ndim)) else emit("transpose", self, perm=perm_)

    @property
    def T(self) -> Array:
        """All axes reversed."""
        return self.transpose()

    def swapaxes(self, a: int, b: int) -> Array:
        """Axes a and b exchanged."""
        perm = list(range(self.ndim))
        a, b = (normal_axis("swapaxes", axis, self.ndim) for axis in (a, b))
        perm[a], perm[b] = perm[b], perm[a]
        return self.transpose(perm)

    def astype(self, dtype: str) -> Array:
        """The value in another dtype: see `ops.cast`."""
        if not isinstance(cast("object", dtype), str):  # it comes from the user
            refuse("astype", "a dtype's name", error=TraceError, got=repr(dtype))
        return self if dtype == self.dtype else emit("cast", self, dtype=dtype)

    def sum(self, axis: Axes = None, keepdims: bool = False) -> Array:
        """The sum over axes (all where None), held in f32 for floats."""
        return reduce("sum", self, axis, keepdims)

    def max(self, axis: Axes = None, keepdims: bool = False) -> Array:
        """The largest over axes; NaN if any is NaN."""
        return reduce("max", self, axis, keepdims)

    def min(self, axis: Axes = None, keepdims: bool = False) -> Array:
        """The least over axes; NaN if any is NaN."""
        return reduce("min", self, axis, keepdims)

    def mean(self, axis: Axes = None, keepdims: bool = False) -> Array:
        """The sum over axes divided by how many; f16 and bf16 are summed and divided in f32."""
        return mean(self, axis, keepdims)


# Recording.


def emit_many(
    op: str, *ins: Array, recorder: Recorder | None = None, **attrs: object
) -> tuple[Array, ...]:
    """Records an eqn and gives its outs. Raises TypeRuleError as the op's rule does, and TraceError
    where operands come from different traces, or from one that has ended."""
    own = recorder or (ins[0].recorder if ins else current(op))
    for x in ins:
        if x.recorder is not own:
            refuse(
                op, "operands of one trace", "A traced value can't leave its trace", TraceError, x=x
            )
    if not own.is_open:
        refuse(op, "a trace in progress", "A traced value can't leave its trace", TraceError)
    outs = own.builder.emit(op, *(x.var for x in ins), loc=here(), **attrs)
    proved = transfer(own.builder.eqns[-1], [x.interval for x in ins])
    return tuple(Array(own, v, b) for v, b in zip(outs, proved, strict=True))


def emit(op: str, *ins: Array, recorder: Recorder | None = None, **attrs: object) -> Array:
    """Records an eqn of one out."""
    (out,) = emit_many(op, *ins, recorder=recorder, **attrs)
    return out


def as_array(value: object, recorder: Recorder, dtype: str | None, op: str) -> Array:
    """An operand as an Array: a scalar becomes a `const` of `dtype`, a numpy array a Const input.
    Raises TypeRuleError where `dtype` can't hold the scalar, TraceError on what is neither."""
    if isinstance(value, Array):
        return value
    if isinstance(value, (np.ndarray, np.generic)):
        known = cast("np.ndarray", value)  # a generic answers alike
        if known.ndim > 0:
            entry = recorder.const_array(known, op)
            return Array(recorder, entry.var, input_interval(entry))
        value = cast("object", known.item())  # of any dtype
    if not isinstance(value, (bool, int, float)):
        refuse(
            op, "traced values, numbers or numpy arrays", error=TraceError, got=type(value).__name__
        )
    if dtype is None:
        refuse(op, "an operand with a dtype", "Write ops.full((), value, dtype)", got=value)
    return emit("const", recorder=recorder, shape=(), dtype=dtype, value=constant(value, dtype, op))


def _has_dtype(value: object) -> bool:
    return isinstance(value, Array) or (isinstance(value, np.ndarray) and value.ndim > 0)


def recorder_of(op: str, *values: object) -> Recorder:
    """The recorder of the first traced value, or the one that is open here."""
    found = next((v.recorder for v in values if isinstance(v, Array)), None)
    return found or current(op)


def operands(op: str, *values: object) -> tuple[Array, ...]:
    """Operands of one op as Arrays; scalars take the dtype of the first that has one."""
    recorder = recorder_of(op, *values)
    arrays = [as_array(v, recorder, None, op) if _has_dtype(v) else None for v in values]
    dtype = next((a.dtype for a in arrays if a is not None), None)
    return tuple(
        a if a is not None else as_array(v, recorder, dtype, op)
        for a, v in zip(arrays, values, strict=True)
    )


def binary(op: str, a: object, b: object) -> Array:
    """a op b, broadcast. Raises TypeRuleError where the dtypes differ: nothing is promoted."""
    x, y = operands(op, a, b)
    if x.dtype != y.dtype:
        refuse(op, "operands of one dtype", "Write .astype(...) on one of them", a=x.type, b=y.type)
    return emit(op, x, y)


# What the methods are made of.


def _ints(op: str, values: tuple[int | Sequence[int], ...]) -> tuple[int, ...]:
    """f(1, 2) and f((1, 2)) alike. Raises TypeRuleError on what is no int."""
    out: list[int] = []
    for v in values:
        one = whole(v)
        several = wholes(v) if one is None else (one,)
        if several is None:
            refuse(op, "ints, or one tuple of ints", got=repr(v))
        out.extend(several)
    return tuple(out)


def normal_axis(op: str, axis: int, ndim: int) -> int:
    """The axis counted from the left. Raises TypeRuleError where there is none."""
    axis = need_whole(op, axis, "an int for an axis")
    if not -ndim <= axis < ndim:
        refuse(op, "an axis of its operand", axis=axis, axes=ndim)
    return axis % ndim


def normal_axes(op: str, axis: Axes, ndim: int) -> tuple[int, ...]:
    """Ascending axes counted from the left; None is all of them."""
    if axis is None:
        return tuple(range(ndim))
    one, several = whole(axis), wholes(axis)
    given = (one,) if one is not None else several
    if given is None:
        refuse(op, "an axis, a tuple of axes or None", got=repr(axis))
    axes = sorted(normal_axis(op, a, ndim) for a in given)
    if len(set(axes)) < len(axes):
        refuse(op, "each axis once", axis=axis)
    return tuple(axes)


def reshape(x: Array, shape: Sequence[int]) -> Array:
    """The same elements in row-major order; one extent may be -1."""
    wanted = tuple(shape)
    if -1 in wanted:
        rest = math.prod(n for n in wanted if n != -1)
        if wanted.count(-1) > 1 or rest == 0 or x.size % rest:
            refuse("reshape", "one -1 that the other extents divide", x=x.type, shape=wanted)
        wanted = tuple(x.size // rest if n == -1 else n for n in wanted)
    return x if wanted == x.shape else emit("reshape", x, shape=wanted)


def reduce(kind: str, x: Array, axis: Axes, keepdims: bool) -> Array:
    axes = normal_axes(kind, axis, x.ndim)
    if not isinstance(cast("object", keepdims), (bool, np.bool_)):  # it comes from the user
        refuse(kind, "a bool for keepdims", error=TraceError, got=repr(keepdims))
    return emit("reduce", x, kind=kind, axis=axes, keepdim=keepdims) if axes else x


def mean(x: Array, axis: Axes = None, keepdims: bool = False) -> Array:
    """The sum over axes divided by how many; f16 and bf16 are summed and divided in f32, rounded
    once."""
    axes = normal_axes("mean", axis, x.ndim)
    if DTYPES[x.dtype].kind != "float":
        refuse("mean", "a float", "Write .astype('f32')", x=x.type)
    count = math.prod(x.shape[a] for a in axes)
    total = reduce("sum", x.astype("f32"), axes, keepdims)
    return (total / float(count)).astype(x.dtype)


def _getitem(x: Array, index: tuple[object, ...]) -> Array:
    chosen = select(index, x.shape, (Array, np.ndarray))
    if chosen.start != (0,) * x.ndim or chosen.stop != x.shape or set(chosen.step) - {1}:
        x = emit("slice", x, start=chosen.start, stop=chosen.stop, step=chosen.step)
    for axis in chosen.flip:
        x = flip(x, axis)
    x = reshape(x, chosen.shape)
    if chosen.axis < 0:
        return x
    at = as_array(index[chosen.position], x.recorder, None, "indexing")
    return take(x, at, chosen.axis)


def flip(x: Array, axis: int) -> Array:
    """x with axis reversed."""
    extent = x.shape[normal_axis("flip", axis, x.ndim)]
    if extent == 0:
        return x
    back = (extent - 1) - emit("iota", recorder=x.recorder, shape=(extent,), axis=0, dtype="i32")
    return emit("gather", x, back, axis=normal_axis("flip", axis, x.ndim))


def take(x: Operand, index: Operand, axis: int = 0, mode: str | None = None) -> Array:
    """x's elements along axis at index (i32, any shape), which stands where axis stood. The index
    is proved inside the axis, or `mode="clamp"` asks for the nearest element. Raises TypeRuleError
    where neither holds."""
    recorder = recorder_of("take", x, index)
    table = as_array(x, recorder, None, "take")
    at = as_array(index, recorder, "i32", "take")
    axis = normal_axis("take", axis, table.ndim)
    if table.shape[axis] == 0:
        refuse("take", "an axis with elements", x=table.type, axis=axis)
    prove("take", at, 0, table.shape[axis] - 1, mode)
    return emit("gather", table, at, axis=axis)


def prove(op: str, index: Array, lo: int, hi: int, mode: str | None) -> None:
    """Checks that lo <= index <= hi is proved, or that the caller wrote mode="clamp"."""
    if mode not in (None, "clamp"):
        refuse(op, 'mode None or "clamp"', mode=mode)
    if index.dtype != "i32":
        refuse(op, "an i32 index", "Write .astype('i32')", index=index.type)
    held = index.interval
    if mode == "clamp" or index.size == 0 or (held and held.within(lo, hi)):
        return
    remedy = (
        f"Declare range=({lo}, {hi + 1}) on its slot, bound it with ops.clip or ops.index_guard, "
        'or write mode="clamp"'
    )
    proved = f"{held.lo}..{held.hi}" if held else "nothing"
    refuse(op, f"an index proved in {lo}..{hi}", remedy, index=index.type, proved=proved)


def matmul(a: object, b: object) -> Array:
    """[...,m,k] x [...,k,n] -> [...,m,n]; batch axes broadcast, and a vector is a row on the left
    and a column on the right, as in numpy. The sum over k is held in f32."""
    x, y = operands("matmul", a, b)
    if x.ndim == 0 or y.ndim == 0:
        refuse("matmul", "vectors, matrices or batches of them", a=x.type, b=y.type)
    left, right = x.ndim == 1, y.ndim == 1
    x = reshape(x, (1, *x.shape)) if left else x
    out = emit("matmul", x, reshape(y, (*y.shape, 1)) if right else y)
    shape = out.shape[:-1] if right else out.shape
    if left:
        shape = shape[:-1] if right else (*shape[:-2], shape[-1])
    return reshape(out, shape)


def true_divide(a: object, b: object) -> Array:
    """a / b of floats."""
    x, y = operands("/", a, b)
    if DTYPES[x.dtype].kind != "float":
        refuse("/", "floats", "Write // or .astype('f32')", a=x.type, b=y.type)
    return binary("div", x, y)


def _not_negative(*values: Array) -> bool:
    return all(x.interval is not None and x.interval.lo >= 0 for x in values)


def floor_divide(a: object, b: object) -> Array:
    """a // b rounded down, as in numpy; an integer over 0 gives 0. Where both are proved not
    negative that is the `div` op alone."""
    x, y = operands("//", a, b)
    quotient = binary("div", x, y)
    if DTYPES[x.dtype].kind == "float":
        return emit("floor", quotient)
    if x.dtype == "u32" or (_not_negative(x, y)):
        return quotient
    inexact = (emit("rem", x, y) != 0) & ((x < 0) != (y < 0))
    return emit("select", *operands("//", inexact, quotient - 1, quotient))


def modulo(a: object, b: object) -> Array:
    """a % b with the sign of b, as in numpy; an integer modulo 0 gives 0. Where both are proved not
    negative that is the `rem` op alone."""
    x, y = operands("%", a, b)
    rest = binary("rem", x, y)
    if x.dtype == "u32" or (_not_negative(x, y)):
        return rest
    astray = (rest != 0) & ((rest < 0) != (y < 0))
    return emit("select", astray, rest + y, rest)


def power(x: Array, exponent: Array | int | float) -> Array:
    """x ** exponent for an int (by squaring; negative is the reciprocal, floats only), 0.5 or
    -0.5."""
    known = not isinstance(exponent, Array) and is_number(exponent)
    if known and exponent in (0.5, -0.5):
        return emit("sqrt" if exponent > 0 else "rsqrt", x)
    if isinstance(exponent, Array) or not known or exponent != exponent // 1:
        remedy = "Write ops.exp(ops.log(x) * p) for x > 0"
        refuse("**", "a known int, 0.5 or -0.5", remedy, exponent=exponent)
    left, square = abs(int(exponent)), x
    result: Array | None = None
    while left:
        if left & 1:
            result = square if result is None else result * square
        left >>= 1
        square = square * square if left else square
    if result is None:
        return emit("broadcast", as_array(1, x.recorder, x.dtype, "**"), shape=x.shape)
    return emit("recip", result) if exponent < 0 else result


_SPECIAL: dict[str, Callable[[object, object], Array]] = {
    "true_divide": true_divide,
    "floor_divide": floor_divide,
    "modulo": modulo,
    "matmul": matmul,
}
