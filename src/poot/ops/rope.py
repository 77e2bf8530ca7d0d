"""Rotary position embedding: pairs of elements turned by angles that grow with the position."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass

import numpy as np

from poot.errors import TraceError
from poot.ops.array import Array, Operand, as_array, emit, reshape
from poot.ops.kinds import is_number
from poot.ops.record import refuse
from poot.ops.shape import concat, stack


@dataclass(frozen=True, slots=True)
class LinearScaling:
    """Every frequency divided by factor."""

    factor: float

    def __post_init__(self) -> None:
        _positive(self)


@dataclass(frozen=True, slots=True)
class Llama3Scaling:
    """Llama 3's bands: wavelengths below original / high keep their frequency, those above original
    / low are divided by factor, those between are blended."""

    factor: float
    low: float
    high: float
    original: int

    def __post_init__(self) -> None:
        _positive(self)
        if self.low >= self.high:
            refuse("Llama3Scaling", "low < high", error=TraceError, low=self.low, high=self.high)


@dataclass(frozen=True, slots=True)
class YarnScaling:
    """YaRN: pairs that turn more than beta_fast times in `original` positions keep their frequency,
    those that turn less than beta_slow times are divided by factor, a ramp over the pair index
    between. cos and sin are multiplied by attention_factor, 0.1 ln(factor) + 1 where None.
    `truncate` rounds the ramp's ends outward to whole pairs."""

    factor: float
    original: int
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    attention_factor: float | None = None
    truncate: bool = True

    def __post_init__(self) -> None:
        _positive(self)


@dataclass(frozen=True, slots=True)
class FactorScaling:
    """LongRoPE: the frequency of pair i divided by factors[i]. cos and sin are multiplied by
    attention_factor."""

    factors: tuple[float, ...]
    attention_factor: float = 1.0

    def __post_init__(self) -> None:
        seen = (*self.factors, self.attention_factor)
        if not self.factors or not all(is_number(x) and 0 < x < math.inf for x in seen):
            refuse("FactorScaling", "factors above 0, one a pair", error=TraceError, got=repr(seen))


def _positive(scaling: LinearScaling | Llama3Scaling | YarnScaling) -> None:
    """Raises TraceError unless every number of a scaling is one, above 0 and finite."""
    for f in dataclasses.fields(scaling):
        value: object = getattr(scaling, f.name)
        if isinstance(value, bool) and f.name == "truncate":
            continue
        left_out = value is None and f.name == "attention_factor"
        is_above = isinstance(value, (int, float)) and 0 < value < math.inf
        if not left_out and not (is_above and is_number(value)):
            refuse(
                type(scaling).__name__,
                f"a number above 0 for {f.name}",
                error=TraceError,
                got=repr(value),
            )


Scaling = LinearScaling | Llama3Scaling | YarnScaling | FactorScaling


def frequencies(theta: float, dim: int, scaling: Scaling | None = None) -> np.ndarray:
    """Radians a position, f64 [dim / 2]: theta^(-2i / dim) for pair i, then scaled."""
    if dim <= 0 or dim % 2 or theta <= 0:
        refuse("rope", "an even width above 0 and theta above 0", dim=dim, theta=theta)
    plain = float(theta) ** (-np.arange(0, dim, 2, dtype=np.float64) / dim)
    if scaling is None:
        return plain
    if isinstance(scaling, LinearScaling):
        return plain / scaling.factor
    if isinstance(scaling, Llama3Scaling):
        turns = scaling.original * plain / (2 * math.pi)
        kept = np.clip((turns - scaling.low) / (scaling.high - scaling.low), 0.0, 1.0)
        return (1 - kept) * plain / scaling.factor + kept * plain
    if isinstance(scaling, FactorScaling):
        if len(scaling.factors) != len(plain):
            refuse("rope", "a factor for each pair", dim=dim, factors=len(scaling.factors))
        return plain / np.asarray(scaling.factors)
    return _yarn(plain, theta, dim, scaling)


def _yarn(plain: np.ndarray, theta: float, dim: int, scaling: YarnScaling) -> np.ndarray:
    if theta <= 1:
        refuse("rope", "theta above 1 for YaRN", theta=theta)

    def pair_that_turns(times: float) -> float:
        return dim * math.log(scaling.original / (times * 2 * math.pi)) / (2 * math.log(theta))

    low, high = pair_that_turns(scaling.beta_fast), pair_that_turns(scaling.beta_slow)
    if scaling.truncate:
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, dim - 1)
    ramp = (np.arange(dim // 2) - low) / (high - low if high > low else 0.001)
    divided = np.clip(ramp, 0.0, 1.0)
    return plain / scaling.factor * divided + plain * (1 - divided)


def amplitude(scaling: Scaling | None) -> float:
    """What cos and sin are multiplied by: 1 but for YaRN and LongRoPE."""
    if isinstance(scaling, FactorScaling):
        return scaling.attention_factor
    if not isinstance(scaling, YarnScaling):
        return 1.0
    if scaling.attention_factor is not None:
        return scaling.attention_factor
    return 0.1 * math.log(scaling.factor) + 1.0 if scaling.factor > 1 else 1.0


def rope_tables(
    length: int, theta: float, dim: int, scaling: Scaling | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """(cos, sin) for positions 0 .. length-1, f32 [length, dim / 2], computed in f64: to be
    gathered by position and given to `rotate`."""
    angles = np.arange(length, dtype=np.float64)[:, None] * frequencies(theta, dim, scaling)
    size = amplitude(scaling)
    return (np.cos(angles) * size).astype(np.float32), (np.sin(angles) * size).astype(np.float32)


def rope_angles(
    positions: Array, theta: float, dim: int, scaling: Scaling | None = None
) -> tuple[Array, Array]:
    """(cos, sin), f32 [*positions.shape, dim / 2], computed in f32 from positions (i32)."""
    if positions.dtype != "i32":
        refuse("rope", "i32 positions", positions=positions.type)
    turn = as_array(
        frequencies(theta, dim, scaling).astype(np.float32), positions.recorder, None, "rope"
    )
    angles = reshape(positions.astype("f32"), (*positions.shape, 1)) * turn
    cos, sin = emit("cos", angles), emit("sin", angles)
    size = amplitude(scaling)
    return (cos, sin) if size == 1.0 else (cos * size, sin * size)


def rope(
    x: Array,
    positions: Array,
    theta: float,
    dim: int | None = None,
    interleaved: bool = False,
    scaling: Scaling | None = None,
) -> Array:
    """x [..., L, D] with the first `dim` elements (all where None) of each row turned by its
    position.

    positions is i32 [L], or [B, L] for x [B, ..., L, D], or [] for the first row's (row i stands at
    positions + i). Pair i is elements (2i, 2i+1) where interleaved, else (i, i + dim/2), and turns
    by theta^(-2i/dim) radians a position. Angles are f32."""
    if x.ndim < 2:
        refuse("rope", "x [..., L, D]", x=x.type)
    if positions.ndim == 0:
        rows = emit("iota", recorder=x.recorder, shape=(x.shape[-2],), axis=0, dtype="i32")
        positions = rows + positions
    batched = x.ndim > 2 and positions.shape == (x.shape[0], x.shape[-2])
    if positions.shape != x.shape[-2:-1] and not batched:
        refuse("rope", "positions [], [L] or [B, L]", x=x.type, positions=positions.type)
    cos, sin = rope_angles(positions, theta, x.shape[-1] if dim is None else dim, scaling)
    if batched:
        shape = (x.shape[0], *(1,) * (x.ndim - 3), *cos.shape[1:])
        cos, sin = reshape(cos, shape), reshape(sin, shape)
    return rotate(x, cos, sin, interleaved)


def rotate(x: Array, cos: Operand, sin: Operand, interleaved: bool = False) -> Array:
    """x [..., D] with its first 2 * half elements turned by pairs and the rest kept; cos and sin
    [..., half] broadcast against x. (a, b) becomes (a cos - b sin, b cos + a sin), in x's dtype."""
    c, s = (as_array(t, x.recorder, x.dtype, "rope").astype(x.dtype) for t in (cos, sin))
    half = c.shape[-1] if c.ndim and x.ndim else -1
    if c.shape != s.shape or not 0 <= 2 * half <= x.shape[-1]:
        refuse(
            "rope", "cos and sin alike, at most half as wide as x", x=x.type, cos=c.type, sin=s.type
        )
    turned = x[..., : 2 * half]
    if interleaved:
        a, b = turned[..., 0::2], turned[..., 1::2]
        pairs = stack([a * c - b * s, b * c + a * s], -1)
        turned = reshape(pairs, (*pairs.shape[:-2], 2 * half))
        parts = [turned]
    else:
        a, b = turned[..., :half], turned[..., half:]
        parts = [a * c - b * s, b * c + a * s]
    if 2 * half < x.shape[-1]:
        parts.append(x[..., 2 * half :])
    return concat(parts, -1)
