"""What a product becomes before the softmax, in the unit that maxima are held in.

Scaling alone folds into one factor with log2(e): maxima are in base 2. With a softcap, a bias or a
mask the score is made as everywhere, in its own unit, and a difference of scores takes the factor:
finite masks as low as f32 has them would overflow in base 2.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from poot.codegen.gen.attention.parts import Parts
from poot.codegen.gen.attention.score import score
from poot.codegen.gen.index import ZERO, Index
from poot.codegen.gen.job import Job
from poot.codegen.gen.math import log
from poot.codegen.kir.build import Val

# The least f32: no score is below it but -inf, and no difference from it is NaN but of NaN.
LEAST = -3.4028234663852886e38
# How far a score may pass the maximum that it is measured by, in base 2.
SLACK = 8.0
_LOG2E = math.log2(math.e)


@dataclass(frozen=True, slots=True)
class Scores:
    """The scores of one kernel, `repeat` query heads a unit. `is_plain`: scale alone."""

    job: Job
    parts: Parts
    repeat: int
    is_plain: bool

    @staticmethod
    def of(job: Job, parts: Parts, repeat: int) -> Scores:
        is_plain = parts.softcap is None and not {"bias", "mask"} & set(parts.at)
        return Scores(job, parts, repeat, is_plain)

    @property
    def factor(self) -> float:
        """What a plain product is multiplied by."""
        return self.parts.scale * _LOG2E

    @property
    def slack(self) -> float:
        return SLACK if self.is_plain else SLACK / _LOG2E

    def power(self, difference: Val) -> Val:
        """2, or e, to a difference of scores."""
        return self.job.k.op("exp2", difference if self.is_plain else difference * _LOG2E)

    def own_unit(self, natural: Val) -> Val:
        """A score in its own unit, in the unit of maxima."""
        return natural * _LOG2E if self.is_plain else natural

    def natural(self, most: Val) -> Val:
        """A maximum as a score in its own unit."""
        return most * (1 / _LOG2E) if self.is_plain else most

    def log_sum(self, most: Val, total: Val) -> Val:
        """The logarithm of total at maximum `most`, in a score's own unit; -inf of nothing."""
        k = self.job.k
        found = self.natural(most) + log(k, total)
        return k.select(total.eq(0.0), k.lit(-math.inf), found)

    def value(self, product: Val, row: Val, unit: Val, head: Val, key: Val) -> Val:
        """The score of a query head of a batch row's unit and a key; keys past the last are read as
        the last, and hidden by who asks."""
        if self.is_plain:
            return product * self.factor
        job, parts = self.job, self.parts
        k, ix = job.k, job.indexer
        there = k.op("min", head, self.repeat - 1)
        member: Index = ix.atom(unit * self.repeat + there, parts.heads)
        last = ix.atom(k.op("min", key, parts.keys - 1), parts.keys)
        where = (ix.atom(k.copy(row), parts.batch), member, ZERO)
        return score(job, parts, product, where, last)
