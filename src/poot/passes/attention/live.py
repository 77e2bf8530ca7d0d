"""The live length: how many keys of each batch row count, where a program says so three times.

before   k = select(t < len, k, 0)   v = select(t < len, v, 0)
         s = select(t < len, s, -inf)
after    attention(q, k, v, len)

Only where 1 <= len <= Lk is proved, and all three stand under the one length. Then no row past it
reaches a result, NaN or not, and none is visited. Otherwise the selects stay what they are.
"""

from __future__ import annotations

from dataclasses import dataclass

from poot.ir.graph import Var
from poot.passes.attention.before import Before, before_of
from poot.passes.attention.proofs import Proofs
from poot.passes.attention.rows import Dims
from poot.passes.attention.views import Axis, joined, written
from poot.passes.engine import Scope


@dataclass(frozen=True, slots=True)
class Length:
    """limit + at of each batch row; `lies` says which element of limit (i32) is a row's."""

    limit: Var
    lies: Axis
    at: int

    def why_not(self, proofs: Proofs, keys: int) -> str | None:
        """Why it is not proved to be in 1..keys, or None."""
        return proofs.why_not(self.limit, 1, keys, self.at)

    def written(self, scope: Scope, batch: int) -> Var:
        """The length as the op takes it, i32 [B]."""
        x = written(scope, self.limit, (batch,), self.lies)
        if self.at == 0:
            return x
        step = scope.emit("const", shape=(), dtype="i32", value=self.at)
        return scope.emit("add", x, step)


def length_of(claim: Before, batch: list[int], key: int, keys: int) -> Length | None:
    """The length that a claim gives keys of the axis `key`, batch rows on the axes `batch`; None
    where it says more than that."""
    wanted = ((keys, 1),) if keys != 1 else ()
    if joined(claim.steps[key]) != wanted:
        return None
    for axis, (steps, lies) in enumerate(zip(claim.steps, claim.lies, strict=True)):
        if axis != key and any(stride for _, stride in steps):
            return None
        if axis not in batch and any(stride for _, stride in lies):
            return None
    at = joined(tuple(pair for axis in batch for pair in claim.lies[axis]))
    return Length(claim.limit, at, claim.at)


def length_at(
    scope: Scope, claim: tuple[Var, bool], shape: tuple[int, ...], batch: list[int], keys: int
) -> Length | None:
    """The length that a condition, holding or not, gives scores of that shape, keys last."""
    found = before_of(scope, *claim, shape)
    return found and length_of(found, batch, len(shape) - 1, keys)


def live_length(
    of_keys: list[Length | None],
    of_values: list[Length | None],
    of_scores: list[Length],
    dims: Dims,
    proofs: Proofs,
) -> Length | str | None:
    """The one length that keys, values and scores stand under; or why there is none; or None, where
    neither keys nor values are selected to zero."""
    if not of_keys and not of_values:
        return None
    for what, found in (("key rows", of_keys), ("value rows", of_values)):
        if not found:
            return f"the {what} past the length are not selected to zero"
        if None in found:
            return f"the {what} are selected to zero by more than a length"
    if not of_scores:
        return "the scores past the length are not selected to -inf"
    live = of_keys[0]
    assert live is not None
    if set(of_keys) | set(of_values) != {live} or live not in of_scores:
        return "keys, values and scores are under unlike lengths"
    why = live.why_not(proofs, dims.keys)
    return f"the length of {dims.keys} keys: {why}" if why else live
