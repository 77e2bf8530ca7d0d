"""How far a target may be from the oracle: one row for each kind of work and dtype, each with its
reason. A test names a row; nothing else holds a tolerance of its own between targets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import ml_dtypes
import numpy as np


@dataclass(frozen=True, slots=True)
class Tolerance:
    """|got - want| <= within_abs + within_rel * |want|. Beyond that NaN stands where NaN stands,
    infinities agree, and a value that the dtype holds as a subnormal may be 0."""

    within_rel: float
    within_abs: float
    why: str


_ULP = {"f32": 2.0**-23, "f16": 2.0**-10, "bf16": 2.0**-7, "f8e4m3": 2.0**-3}
_LEAST = {"f32": 2.0**-126, "f16": 2.0**-14, "bf16": 2.0**-126, "f8e4m3": 2.0**-6}


def _rows(kind: str, ulp: float, why: str) -> dict[tuple[str, str], Tolerance]:
    """A row for each float dtype. What is narrower than f32 is computed in f32 and rounded once, so
    that it is off by one place at the most, where the f32 values straddle a tie."""
    narrow = "computed in f32 and rounded once: one place, where f32 straddles a tie"
    out = {(kind, "f32"): Tolerance(ulp * _ULP["f32"], 0.0, why)}
    for dtype in ("f16", "bf16", "f8e4m3"):
        out[kind, dtype] = Tolerance(_ULP[dtype], 0.0, f"{why}; {narrow}")
    return out


TOLERANCES: dict[tuple[str, str], Tolerance] = {
    **_rows("arith", 1.0, "one rounding; a driver may contract a product and a sum"),
    **_rows("div", 2.5, "SPIR-V allows 2.5 ulp for a division"),
    **_rows("math", 8.0, "polynomials of kernel IR ops, and numpy's own error"),
    **_rows("sum", 64.0, "sums of a few hundred terms in another order, none cancelling much"),
    # Angles are reduced in f32 parts, and numpy's sine near a zero is exact to the last place.
    ("angle", "f32"): Tolerance(0.0, 1e-6, "absolute, since the reduced angle is"),
    ("angle", "f16"): Tolerance(_ULP["f16"], 1e-6, "absolute, since the reduced angle is"),
    ("angle", "bf16"): Tolerance(_ULP["bf16"], 1e-6, "absolute, since the reduced angle is"),
    ("angle", "f8e4m3"): Tolerance(_ULP["f8e4m3"], 1e-6, "absolute, since the reduced angle is"),
    # Unit-normal operands; a product of two is summed over a few hundred terms.
    ("matmul", "f32"): Tolerance(1e-5, 2e-5, "f32 sums of some hundred products in another order"),
    ("matmul", "f16"): Tolerance(_ULP["f16"], 1e-3, "held in f32 and rounded once"),
    ("matmul", "bf16"): Tolerance(_ULP["bf16"], 1e-3, "held in f32 and rounded once"),
    ("matmul", "f8e4m3"): Tolerance(_ULP["f8e4m3"], 2e-3, "held in f32 and rounded once"),
    # The bounds that the list of hard cases asks for, on unit-normal operands.
    ("attention", "f32"): Tolerance(0.0, 2e-5, "online softmax and sums in another order"),
    ("attention", "f16"): Tolerance(0.0, 4e-3, "f32 state, rounded once to f16"),
    ("attention", "bf16"): Tolerance(0.0, 3e-2, "f32 state, rounded once to bf16"),
    # A finite mask of 1e9 absorbs a score in f32: a rounding of the sum decides its place.
    ("masked by numbers", "f32"): Tolerance(0.0, 1e-4, "scores near 1e9 are whole tens in f32"),
    ("logits", "f32"): Tolerance(0.0, 2e-3, "30 layers of f32 sums in another order, logits to 30"),
}

_EXACT = Tolerance(0.0, 0.0, "moves, integers, comparisons: nothing rounds")


def tolerance(kind: str, dtype: str) -> Tolerance:
    """The row, or equality for "exact" and for what is no float."""
    return _EXACT if kind == "exact" else TOLERANCES.get((kind, dtype), _EXACT)


def dtype_name(x: np.ndarray) -> str:
    names = {
        np.dtype(np.float32): "f32",
        np.dtype(np.float16): "f16",
        np.dtype(ml_dtypes.bfloat16): "bf16",
        np.dtype(ml_dtypes.float8_e4m3fn): "f8e4m3",
    }
    return names.get(x.dtype, str(x.dtype))


def _outside(got: np.ndarray, want: np.ndarray, tol: Tolerance, least: float) -> np.ndarray:
    with np.errstate(all="ignore"):
        far = np.abs(got - want) > tol.within_abs + tol.within_rel * np.abs(want)
        same = (got == want) | (np.isnan(got) & np.isnan(want))
        finite = np.isfinite(got) & np.isfinite(want)
        flushed = (np.abs(want) < least) & (np.abs(got) <= least)
        return ~same & ~flushed & (far | ~finite)


def difference(got: np.ndarray, wants: Sequence[np.ndarray], kind: str) -> str | None:
    """What is wrong with `got`, in one line, or None. Each element may be any of those wanted."""
    want = wants[0]
    if got.dtype != want.dtype or got.shape != want.shape:
        return f"is {got.dtype}{list(got.shape)}, wanted {want.dtype}{list(want.shape)}"
    dtype = dtype_name(want)
    tol, least = tolerance(kind, dtype), _LEAST.get(dtype, 0.0)
    with np.errstate(invalid="ignore"):  # casting a signalling NaN
        wide = [np.atleast_1d(x.astype(np.float64)) for x in (got, *wants)]
    bad = np.logical_and.reduce([_outside(wide[0], w, tol, least) for w in wide[1:]])
    if not bad.any():
        return None
    at = tuple(int(n) for n in np.argwhere(bad)[0])
    rest = f"{int(bad.sum())} of {bad.size} elements, the first at {at}"
    return f"{rest}: got {wide[0][at]!r}, wanted {wide[1][at]!r} (row {kind!r}, {dtype})"


def assert_within(got: np.ndarray, want: np.ndarray, kind: str, what: str = "") -> None:
    """Asserts that `got` is `want` to the tolerance of that row for its dtype."""
    wrong = difference(got, [want], kind)
    assert wrong is None, f"{what}: {wrong}" if what else wrong
