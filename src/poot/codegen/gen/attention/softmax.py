"""The online softmax: how a running (maximum, sum) takes one more score, and how several become
one.

A score of -inf weighs exactly 0 and exp(-inf - -inf) is never formed. A NaN score reaches the row's
result.
"""

from __future__ import annotations

from dataclasses import dataclass

from poot.codegen.gen.math import LOG2_E, exp, is_neg_inf
from poot.codegen.kir.build import U32, KernelBuilder, Val

NEG_INF = float("-inf")


@dataclass(frozen=True, slots=True)
class Step:
    """What one score does: the new maximum, what the old sums shrink by, the score's own weight."""

    peak: Val
    shrink: Val
    weight: Val


def step(k: KernelBuilder, peak: Val, score: Val) -> Step:
    """One more score. `peak` is the maximum so far, -inf before the first visible key."""
    new = k.op("nanmax", peak, score)
    is_same = k.bitcast(new, U32).eq(k.bitcast(peak, U32))
    shrink = k.select(is_same, k.lit(1.0), exp(k, peak - new))
    return Step(new, shrink, weight_of(k, score, new))


def weight_of(k: KernelBuilder, score: Val, peak: Val) -> Val:
    """exp(score - peak), exactly 0 where the score is -inf."""
    return k.select(is_neg_inf(k, score), k.lit(0.0), exp(k, score - peak))


def weight_under(k: KernelBuilder, score: Val, peak: Val) -> Val:
    """`weight_of` a score that isn't above the peak: the rounding of the product then costs at most
    2^-25 of the largest weight."""
    return k.select(is_neg_inf(k, score), k.lit(0.0), k.op("exp2", (score - peak) * LOG2_E))
