"""Python's and numpy's operators on a traced value: each asks `apply` for an op by name."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Self

import numpy as np

from poot.ops.refusals import Untraceable

_UFUNCS = {
    "add": "add",
    "subtract": "sub",
    "multiply": "mul",
    "divide": "true_divide",
    "floor_divide": "floor_divide",
    "remainder": "modulo",
    "matmul": "matmul",
    "equal": "eq",
    "not_equal": "ne",
    "less": "lt",
    "less_equal": "le",
    "greater": "gt",
    "greater_equal": "ge",
    "bitwise_and": "and",
    "bitwise_or": "or",
    "bitwise_xor": "xor",
    "left_shift": "shl",
    "right_shift": "shr",
}


class Operators(Untraceable, ABC):
    """Operators of numpy's meaning. `Array` derives from it."""

    __slots__ = ()

    @abstractmethod
    def apply(self, op: str, a: object, b: object) -> Self:
        """a op b, where `op` is a binary op or one of true_divide, floor_divide, modulo, matmul."""

    def __array_ufunc__(
        self, ufunc: np.ufunc, method: str, *inputs: object, **options: object
    ) -> Self:
        """numpy's side of `array + traced`; any other numpy function of a traced value is
        refused."""
        known = _UFUNCS.get(ufunc.__name__) if method == "__call__" and not options else None
        if known is None:
            self.no_number(f"numpy.{ufunc.__name__}", "Write the ops function of that name")
        a, b = inputs
        return self.apply(known, a, b)

    def __add__(self, other: object) -> Self:
        return self.apply("add", self, other)

    def __radd__(self, other: object) -> Self:
        return self.apply("add", other, self)

    def __sub__(self, other: object) -> Self:
        return self.apply("sub", self, other)

    def __rsub__(self, other: object) -> Self:
        return self.apply("sub", other, self)

    def __mul__(self, other: object) -> Self:
        return self.apply("mul", self, other)

    def __rmul__(self, other: object) -> Self:
        return self.apply("mul", other, self)

    def __truediv__(self, other: object) -> Self:
        return self.apply("true_divide", self, other)

    def __rtruediv__(self, other: object) -> Self:
        return self.apply("true_divide", other, self)

    def __floordiv__(self, other: object) -> Self:
        return self.apply("floor_divide", self, other)

    def __rfloordiv__(self, other: object) -> Self:
        return self.apply("floor_divide", other, self)

    def __mod__(self, other: object) -> Self:
        return self.apply("modulo", self, other)

    def __rmod__(self, other: object) -> Self:
        return self.apply("modulo", other, self)

    def __matmul__(self, other: object) -> Self:
        return self.apply("matmul", self, other)

    def __rmatmul__(self, other: object) -> Self:
        return self.apply("matmul", other, self)

    def __and__(self, other: object) -> Self:
        return self.apply("and", self, other)

    def __rand__(self, other: object) -> Self:
        return self.apply("and", other, self)

    def __or__(self, other: object) -> Self:
        return self.apply("or", self, other)

    def __ror__(self, other: object) -> Self:
        return self.apply("or", other, self)

    def __xor__(self, other: object) -> Self:
        return self.apply("xor", self, other)

    def __rxor__(self, other: object) -> Self:
        return self.apply("xor", other, self)

    def __lshift__(self, other: object) -> Self:
        return self.apply("shl", self, other)

    def __rlshift__(self, other: object) -> Self:
        return self.apply("shl", other, self)

    def __rshift__(self, other: object) -> Self:
        return self.apply("shr", self, other)

    def __rrshift__(self, other: object) -> Self:
        return self.apply("shr", other, self)

    def __eq__(self, other: object) -> Self:  # pyright: ignore[reportIncompatibleMethodOverride] - as numpy
        return self.apply("eq", self, other)

    def __ne__(self, other: object) -> Self:  # pyright: ignore[reportIncompatibleMethodOverride] - as numpy
        return self.apply("ne", self, other)

    def __lt__(self, other: object) -> Self:
        return self.apply("lt", self, other)

    def __le__(self, other: object) -> Self:
        return self.apply("le", self, other)

    def __gt__(self, other: object) -> Self:
        return self.apply("gt", self, other)

    def __ge__(self, other: object) -> Self:
        return self.apply("ge", self, other)

    def __hash__(self) -> int:
        return id(self)

    def __pos__(self) -> Self:
        return self
