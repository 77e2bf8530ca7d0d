"""Chooses the next token from logits, on the host.

Randomness is a counter: the number drawn for a token depends on (seed, step, token) alone, through
wrapping u32 arithmetic. So a run repeats on any machine, and a graph can draw the same numbers.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from poot.errors import RequestError, ValidationError

F32_MOST = float(np.finfo(np.float32).max)


@dataclass(frozen=True, slots=True)
class Sampling:
    """How to choose. `temperature` 0 takes the largest logit, the lower id on ties. Above 0, logits
    are divided by it; then `min_p` keeps the tokens at least so probable as min_p times the most
    probable (0: all), `top_k` the k largest of them (0: all), and `top_p` the fewest of those whose
    probabilities reach p (1: all). Before all that `penalty` divides the logits of tokens that the
    text holds already, where they are positive, and multiplies the others (1: none); then from
    those of tokens that came n times after the prompt `presence` + n * `frequency` is taken. Raises
    RequestError for options out of range."""

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    seed: int = 0
    min_p: float = 0.0
    penalty: float = 1.0
    presence: float = 0.0
    frequency: float = 0.0

    @property
    def counts(self) -> bool:
        """Whether it matters how often a token came."""
        return self.presence != 0 or self.frequency != 0

    def __post_init__(self) -> None:
        if not (math.isfinite(self.temperature) and self.temperature >= 0):
            raise RequestError(f"temperature is {self.temperature}; needs a number from 0 up")
        if self.top_k < 0:
            raise RequestError(f"top_k is {self.top_k}; needs 0 (all) or more")
        if not 0 < self.top_p <= 1:
            raise RequestError(f"top_p is {self.top_p}; needs a number above 0 and up to 1")
        if not 0 <= self.min_p <= 1:
            raise RequestError(f"min_p is {self.min_p}; needs a number from 0 to 1")
        if not 1 / F32_MOST <= self.penalty <= F32_MOST:
            raise RequestError(
                f"the repetition penalty is {self.penalty}; needs a number above 0, 1 for none, "
                "that f32 holds, as it does one divided by it"
            )
        for name in ("presence", "frequency"):
            if not abs(getattr(self, name)) <= F32_MOST:
                raise RequestError(
                    f"{name} is {getattr(self, name)}; needs a number that f32 holds, 0 for none"
                )
        if not 0 <= self.seed < 1 << 32:
            raise RequestError(f"seed is {self.seed}; needs an integer from 0 to 2^32 - 1")


def sample(logits: NDArray[np.float32], how: Sampling, step: int, seen: Sequence[int] = ()) -> int:
    """The token chosen from `logits` [vocab] at step `step` of a run whose text holds the tokens
    `seen`, of which the last `step` came after the prompt. Only penalties look at them.

    A token of logit -inf is never chosen. Raises ValidationError for a NaN, for +inf, or where
    every logit is -inf.
    """
    bad = np.flatnonzero(np.isnan(logits) | (logits == np.inf))
    if bad.size:
        at = int(bad[0])
        raise ValidationError(f"step {step}: the logit of token {at} is {logits[at]}, no number")
    logits = penalised(logits, how.penalty, seen)
    if how.counts:
        logits = counted(logits, how, seen[max(0, len(seen) - step) :])
    greedy = int(np.argmax(logits))
    if logits[greedy] == -np.inf:
        raise ValidationError(f"step {step}: every logit is -inf, so there is no token to choose")
    if not np.isfinite(logits[greedy]):
        raise ValidationError(
            f"step {step}: the penalties make {logits[greedy]} of the logit of token {greedy}"
        )
    if how.temperature == 0:
        return greedy
    with np.errstate(over="ignore"):
        scores = (logits.astype(np.float64) - float(logits[greedy])) / how.temperature
    kept = _kept(scores, how)
    # Gumbel's trick: the largest of score + noise is a draw from the softmax of the scores.
    noise = -np.log(-np.log(uniform(how.seed, step, len(logits))))
    return int(kept[np.argmax(scores[kept] + noise[kept])])


def penalised(
    logits: NDArray[np.float32], penalty: float, seen: Iterable[int]
) -> NDArray[np.float32]:
    """The logits with those of the tokens `seen` divided by the penalty where positive, else
    multiplied by it."""
    at = np.array(sorted(set(seen)), np.intp) if penalty != 1 else np.zeros(0, np.intp)
    if not at.size:
        return logits
    changed, by = logits.copy(), np.float32(penalty)
    with np.errstate(over="ignore"):
        changed[at] = np.where(logits[at] > 0, logits[at] / by, logits[at] * by)
    return changed


def counted(logits: NDArray[np.float32], how: Sampling, new: Sequence[int]) -> NDArray[np.float32]:
    """The logits less what `how` takes for the tokens `new`, each as often as it came."""
    at, counts = np.unique(np.array(new, np.intp), return_counts=True)
    changed = logits.copy()
    with np.errstate(over="ignore", invalid="ignore"):
        less = np.float32(how.presence) + np.float32(how.frequency) * counts.astype(np.float32)
        changed[at] -= less
    return changed


def _kept(scores: NDArray[np.float64], how: Sampling) -> NDArray[np.intp]:
    """The tokens that may be chosen, best first; equal scores by rising id."""
    order = np.argsort(-scores, kind="stable")
    order = order[: how.top_k] if how.top_k else order
    least = math.log(how.min_p) if how.min_p else -np.inf
    order = order[(scores[order] > -np.inf) & (scores[order] >= least)]
    if how.top_p == 1:
        return order
    weights = np.exp(scores[order])
    before = np.cumsum(weights) - weights
    return order[before < how.top_p * weights.sum()]


def uniform(seed: int, step: int, count: int) -> NDArray[np.float64]:
    """`count` numbers inside (0, 1), number i a function of (seed, step, i): 24 bits of
    mix(mix(i ^ a) + b), with a = mix(mix(seed) + step) and b = mix(a + 0x9e3779b9), in u32."""
    a = _mix(_mix(np.array([seed], np.uint32)) + np.array([step], np.uint32))
    b = _mix(a + np.array([0x9E3779B9], np.uint32))
    words = _mix(_mix(np.arange(count, dtype=np.uint32) ^ a) + b)
    return ((words >> np.uint32(8)).astype(np.float64) + 0.5) * 2.0**-24


def _mix(x: NDArray[np.uint32]) -> NDArray[np.uint32]:
    """A one-to-one scramble of u32 words (the constants of C. Wellons' lowbias32)."""
    x = (x ^ (x >> np.uint32(16))) * np.uint32(0x7FEB352D)
    x = (x ^ (x >> np.uint32(15))) * np.uint32(0x846CA68B)
    return x ^ (x >> np.uint32(16))
