"""Python numbers as constants of a dtype: only where the dtype can hold that number."""

from __future__ import annotations

import math
from typing import cast

from poot.ir.dtypes import DTYPES
from poot.ops.record import refuse

_WHOLE = {"f32": 2**24, "f16": 2**11, "bf16": 2**8, "f8e4m3": 2**4}
_LARGEST = {
    "f32": 3.4028235677973366e38,
    "f16": 65520.0,
    "bf16": 3.3961775292304957e38,
    "f8e4m3": 464.0,
}
_INTEGERS = {
    "i32": (-(2**31), 2**31 - 1),
    "u32": (0, 2**32 - 1),
    "i8": (-128, 127),
    "u8": (0, 255),
}


def constant(value: bool | int | float, dtype: str, op: str) -> bool | int | float:
    """The value as a `const` of dtype writes it. A float may round, but not to infinity; an int
    must be held exactly; a bool is only ever a bool. Raises TypeRuleError else."""
    if not isinstance(cast("object", dtype), str) or dtype not in DTYPES:  # the user's
        refuse(op, f"a dtype among {', '.join(DTYPES)}", dtype=dtype)
    if dtype == "bool" or isinstance(value, bool):
        if dtype == "bool" and isinstance(value, bool):
            return value
        refuse(
            op,
            "a number for numbers and a bool for bools",
            "Write .astype(...)",
            dtype=dtype,
            value=value,
        )
    if dtype in _INTEGERS:
        least, largest = _INTEGERS[dtype]
        if not _is_finite(value) or int(value) != value:
            refuse(
                op,
                f"a whole number for {dtype}",
                "Write .astype('f32') on the operand",
                value=value,
            )
        if not least <= value <= largest:
            refuse(op, f"a number that {dtype} holds", value=value)
        return int(value)
    if isinstance(value, int) and not _holds(value, dtype):
        refuse(
            op,
            f"an int that {dtype} holds exactly",
            "Write it as a float to let it round",
            value=value,
        )
    if _is_finite(value) and abs(value) >= _LARGEST[dtype]:
        refuse(op, f"a number that {dtype} holds", value=value)
    return float(value)


def _is_finite(value: int | float) -> bool:
    """An int is, even where no float is as large."""
    return isinstance(value, int) or math.isfinite(value)


def _holds(value: int, dtype: str) -> bool:
    """Whether an int has a significand short enough for dtype (its range is checked by the
    caller)."""
    odd = abs(value)
    odd >>= (odd & -odd).bit_length() - 1 if odd else 0
    return odd <= _WHOLE[dtype]
