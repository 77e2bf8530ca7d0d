"""Low-rank adapters in a step: each row adds its own, and adapter 0 adds nothing.

They are States, so that one can be written while sequences of others run. The two factors of an
adapter lie in one row each of `a` and `b`; a rank below the layout's is padded with zeros, and the
scale (alpha / rank) is folded into `b`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from poot import ops
from poot.ops.array import Array
from poot.trace import Spec, state

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Factors(Generic[T]):
    """a [adapters, rank, in], b [adapters, rank, out]."""

    a: T
    b: T


Lora = Mapping[str, Factors[T]]  # by the name of the matrix


def lora_specs(adapters: int, rank: int, targets: Mapping[str, tuple[int, int]]) -> Lora[Spec]:
    """States for no adapter and for `adapters` more, of one layer's matrices name -> (in, out)."""
    count = adapters + 1
    return {
        name: Factors(state((count, rank, wide)), state((count, rank, out)))
        for name, (wide, out) in targets.items()
    }


def chosen(factors: Factors[Array], adapter: Array) -> Factors[Array]:
    """The factors of each row's adapter, i32 [R]: a [R, rank, in], b [R, rank, out]."""
    return Factors(ops.take(factors.a, adapter), ops.take(factors.b, adapter))


def delta(rows: Factors[Array], h: Array) -> Array:
    """What each row's adapter adds: h [R, T, in] @ a^T @ b, f32 [R, T, out]."""
    return h @ rows.a.swapaxes(1, 2) @ rows.b
