"""What a traced value is asked for that a graph can't hold: each is refused by name, with a
remedy."""

from __future__ import annotations

from typing import NoReturn

from poot.errors import TraceError
from poot.ops.record import refuse

_NO_GRADIENTS = "Gradients are not in poot; train elsewhere and bind the weights"


class Untraceable:
    """The requests that a traced value refuses with TraceError. `Array` derives from it."""

    __slots__ = ()

    def no_number(self, what: str, remedy: str) -> NoReturn:
        """Raises TraceError: `what` needs a number that only a step has."""
        refuse(what, "a value known at trace time", remedy, TraceError, value=self)

    def __bool__(self) -> bool:
        self.no_number(
            "bool()", "Python's if, and, or and not can't see it: write ops.where or & | ~"
        )

    def __int__(self) -> int:
        self.no_number("int()", "Write x.astype('i32')")

    def __float__(self) -> float:
        self.no_number("float()", "Write x.astype('f32')")

    def __complex__(self) -> complex:
        self.no_number("complex()", "There are no complex dtypes")

    def __index__(self) -> int:
        self.no_number(
            "an index, range() or a shape", "Use x[i] of a traced array or ops.dynamic_slice"
        )

    def __contains__(self, item: object) -> bool:
        self.no_number("in", "Write ops.any(x == item)")

    def __setitem__(self, index: object, value: object) -> None:
        self.no_number(
            "item assignment", "Write ops.dynamic_update_slice, ops.scatter_update or ops.where"
        )

    def __array__(self, dtype: object = None, copy: object = None) -> NoReturn:
        self.no_number("numpy conversion", "Write the ops function of that name")

    def __array_function__(
        self, func: object, types: object, args: object, kwargs: object
    ) -> NoReturn:
        name = getattr(func, "__name__", "?")
        self.no_number(f"numpy.{name}", f"Write ops.{name} or what it is made of")

    def item(self) -> NoReturn:
        """Refused: a traced value has no numbers yet."""
        self.no_number("item()", "Return it as an output and read it after the step")

    def tolist(self) -> NoReturn:
        """Refused: a traced value has no numbers yet."""
        self.no_number("tolist()", "Return it as an output and read it after the step")

    def numpy(self) -> NoReturn:
        """Refused: a traced value has no numbers yet."""
        self.no_number("numpy()", "Return it as an output and read it after the step")

    def backward(self) -> NoReturn:
        """Refused: poot has no gradients."""
        refuse("backward()", "gradients", _NO_GRADIENTS, TraceError, value=self)

    @property
    def grad(self) -> NoReturn:
        """Refused: poot has no gradients."""
        refuse("grad", "gradients", _NO_GRADIENTS, TraceError, value=self)


def grad(*_args: object, **_options: object) -> NoReturn:
    """Refused by name: poot has no gradients and no training. Raises TraceError."""
    refuse("grad", "gradients", _NO_GRADIENTS, TraceError)


def value_and_grad(*_args: object, **_options: object) -> NoReturn:
    """Refused by name: poot has no gradients and no training. Raises TraceError."""
    refuse("value_and_grad", "gradients", _NO_GRADIENTS, TraceError)
