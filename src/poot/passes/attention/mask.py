"""The masks of a chain as operands of the op.

Masks that are added become one additive mask, their sum. Selects to one fill become one bool mask,
true where every condition keeps the score. Where both stand, the added ones first, the sum is the
`bias`. What hides keys by -inf (`hides.py`) and compares row and key positions alone becomes
`causal` and `window`; against a position of the step, the length. An additive mask after a select
would have to be proved finite: it is declined.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from poot.ir.graph import Var
from poot.passes.attention.declines import claim
from poot.passes.attention.hidden import Bound
from poot.passes.attention.hides import (
    NOTHING_ASSUMED,
    Assumed,
    Claim,
    Hides,
    apart,
    bounds_by_rows,
    hides_of,
    last_hidden,
    reach_of,
)
from poot.passes.attention.live import Length, length_at
from poot.passes.attention.rows import Dims
from poot.passes.attention.scores import Stage
from poot.passes.attention.views import reshaped
from poot.passes.engine import Scope

Attrs = tuple[tuple[str, float | int], ...]


@dataclass(frozen=True, slots=True)
class Masks:
    """What the op takes: operands by name, attributes by name, and the length that the masks set
    the keys by a position of the step, if they do."""

    operands: tuple[tuple[str, Var], ...]
    attrs: Attrs
    length: Length | None = None


def score_lengths(scope: Scope, masks: tuple[Stage, ...], dims: Dims) -> list[Length]:
    """The lengths past which every score is selected to -inf in the end."""
    hides = [hides_of(scope, m) for m in masks]
    out: list[Length] = []
    for each, is_last in zip(hides, last_hidden(hides, -math.inf), strict=True):
        if each is not None and is_last and each.stage.kind == "select":
            found = [_length(scope, each, c, dims) for c in each.claims]
            out += [length for length in found if length is not None]
    return out


def _length(scope: Scope, hides: Hides, claim: Claim, dims: Dims) -> Length | None:
    groups = _axes_of(hides.stage, dims)
    if groups is None:
        return None
    return length_at(scope, claim, hides.stage.shape, groups[0], dims.keys)


def _axes_of(stage: Stage, dims: Dims) -> list[list[int]] | None:
    """The axes of a stage that are B, Hq and Lq."""
    return _grouped(stage.shape[:-1], (dims.batch, dims.heads, dims.rows))


def read_masks(
    scope: Scope,
    masks: tuple[Stage, ...],
    dims: Dims,
    dtype: str,
    live: Length | None = None,
    assumed: Assumed = NOTHING_ASSUMED,
) -> Masks:
    """The masks of scores computed for operands of `dtype`; what the live length says is left out.
    Raises Decline."""
    masks = tuple(part for m in masks for part in apart(scope, m, assumed.lowest))
    first_select = next((n for n, m in enumerate(masks) if m.kind == "select"), len(masks))
    for mask in masks[first_select:]:
        what = "a mask is added after scores were selected away; add it before the select"
        claim(mask.kind == "select", what, mask.loc)
    ranges = _Ranges(scope, [hides_of(scope, m) for m in masks], dims, assumed)
    ranges.without(live)
    attrs, length = ranges.bounded(), ranges.reached()
    adds = [
        m for m, gone in zip(masks, ranges.gone, strict=True) if m.kind != "select" and not gone
    ]
    selects = [h for h in ranges.left() if h.stage.kind == "select"]
    for hides in selects[1:]:
        what = f"selects to unlike numbers, {selects[0].fill} and {hides.fill}"
        claim(hides.fill == selects[0].fill, what, hides.stage.loc)
    added, kept = _sum(scope, adds, dims, dtype), _kept(scope, selects, dims)
    if kept is None:
        return Masks((("mask", added),) if added is not None else (), attrs, length)
    bias = (("bias", added),) if added is not None else ()
    return Masks((*bias, ("mask", kept)), (*attrs, ("mask_fill", selects[0].fill)), length)


class _Ranges:
    """The claims of the stages, and those that are taken: said by the op in another way."""

    def __init__(
        self, scope: Scope, hides: list[Hides | None], dims: Dims, assumed: Assumed
    ) -> None:
        self.scope, self.hides, self.dims, self.assumed = scope, hides, dims, assumed
        self.taken: set[tuple[int, Claim]] = set()

    def _claims(self, lowest: float) -> list[tuple[int, Hides, Claim]]:
        """Every claim not taken of the stages that hide their keys to the end."""
        last = last_hidden(self.hides, lowest)
        return [
            (n, each, c)
            for n, each in enumerate(self.hides)
            if each is not None and last[n]
            for c in each.claims
            if (n, c) not in self.taken
        ]

    def without(self, live: Length | None) -> None:
        """Takes what the live length says."""
        for n, each, c in self._claims(-math.inf) if live is not None else ():
            if each.stage.kind == "select" and _length(self.scope, each, c, self.dims) == live:
                self.taken.add((n, c))

    def bounded(self) -> Attrs:
        """Takes the bounds that causal and window say, and gives those."""
        found: list[tuple[int, Claim, Bound]] = []
        for n, each, c in self._claims(self.assumed.lowest):
            found += [(n, c, b) for b in bounds_by_rows(self.scope, each, c, self.dims)]
        attrs = _bounds_as_attrs([bound for _, _, bound in found])
        if attrs:
            self.taken |= {(n, c) for n, c, _ in found}
        return attrs

    def reached(self) -> Length | None:
        """The length that a position of the step sets; takes the claim if that is all it says."""
        proofs = self.assumed.proofs
        if proofs is None:
            return None
        for n, each, c in self._claims(self.assumed.lowest):
            groups = _axes_of(each.stage, self.dims)
            if groups is None:
                continue
            reach = reach_of(self.scope, each, c, groups, self.dims, proofs)
            if reach is not None:
                self.taken |= {(n, c)} if reach.is_all else set()
                return reach.length
        return None

    @property
    def gone(self) -> list[bool]:
        """For each stage whether nothing of it is left."""
        return [
            each is not None and all((n, c) in self.taken for c in each.claims)
            for n, each in enumerate(self.hides)
        ]

    def left(self) -> list[Hides]:
        """The stages with the claims that are left."""
        out: list[Hides] = []
        for n, each in enumerate(self.hides):
            left = tuple(c for c in each.claims if (n, c) not in self.taken) if each else ()
            if each is not None and left:
                out.append(Hides(each.stage, each.fill, left))
        return out


def _kept(scope: Scope, selects: list[Hides], dims: Dims) -> Var | None:
    """Where every select keeps the score, for what is left of their claims."""
    out: Var | None = None
    for hides in selects:
        for var, holds in hides.claims:
            four = four_axes(scope, var, hides.stage.shape, dims)
            four = four if holds else scope.emit("not", four)
            out = four if out is None else scope.emit("and", out, four)
    return out


def _bounds_as_attrs(bounds: list[Bound]) -> Attrs:
    """causal, and window where there is one, if that is what the bounds say; else nothing."""
    upper = [b.at for b in bounds if b.is_upper]
    lower = [b.at for b in bounds if not b.is_upper]
    if not upper:
        return ()
    causal = min(upper)
    window = causal - max(lower) + 1 if lower else None
    if window is None:
        return (("causal", causal),)
    return (("causal", causal), ("window", window)) if window >= 1 else ()


def read_sink(scope: Scope, sink: Var, shape: tuple[int, ...], dims: Dims, loc: str) -> Var:
    """A logit that stands beside scores of that shape, as [Hq]. Raises Decline where it is not one
    number a head."""
    four = four_axes(scope, sink, shape, dims)
    per_head = four.type.shape in ((1, dims.heads, 1, 1), (1, 1, 1, 1))
    claim(per_head, f"a sink that is not one logit a head: {sink.type}", loc)
    one = reshaped(scope, four, four.type.shape[1:2])
    if one.type.shape == (dims.heads,):
        return one
    return scope.emit("broadcast", one, shape=(dims.heads,))


def _sum(scope: Scope, adds: list[Stage], dims: Dims, dtype: str) -> Var | None:
    """The additive masks' sum, in f32 where there are several or their dtype isn't the op's."""
    out: Var | None = None
    for stage in adds:
        assert stage.operand is not None
        four = four_axes(scope, stage.operand, stage.shape, dims)
        if len(adds) > 1 or four.type.dtype != dtype:
            four = cast_to(scope, four, "f32")
        four = scope.emit("neg", four) if stage.kind == "sub" else four
        out = four if out is None else scope.emit("add", out, four)
    return out


def cast_to(scope: Scope, x: Var, dtype: str) -> Var:
    """x in a dtype; x itself where it has it."""
    return x if x.type.dtype == dtype else scope.emit("cast", x, dtype=dtype)


def four_axes(scope: Scope, x: Var, shape: tuple[int, ...], dims: Dims) -> Var:
    """x, which broadcasts to scores of that shape, as [B|1, Hq|1, Lq|1, Lk|1]."""
    padded = (1,) * (len(shape) - len(x.type.shape)) + x.type.shape
    groups = _grouped(shape[:-1], (dims.batch, dims.heads, dims.rows))
    if groups is None:
        full = scope.emit("broadcast", x, shape=(*shape[:-1], padded[-1]))
        return reshaped(scope, full, (dims.batch, dims.heads, dims.rows, padded[-1]))
    wide = list(padded)
    for axes in groups:
        if any(padded[a] != 1 for a in axes):
            for a in axes:
                wide[a] = shape[a]
    x = reshaped(scope, x, padded)
    if tuple(wide) != padded:
        x = scope.emit("broadcast", x, shape=tuple(wide))
    extents = [math.prod(wide[a] for a in axes) for axes in groups]
    return reshaped(scope, x, (*extents, wide[-1]))


def _grouped(shape: tuple[int, ...], targets: tuple[int, ...]) -> list[list[int]] | None:
    """The axes of shape, in order, in groups whose extents multiply to each target."""
    groups: list[list[int]] = []
    axis = len(shape) - 1
    for target in reversed(targets):
        group: list[int] = []
        product = 1
        while product != target or (axis >= 0 and shape[axis] == 1 and not group):
            if axis < 0 or target % (product * shape[axis]):
                return None
            product *= shape[axis]
            group.append(axis)
            axis -= 1
        groups.append(group)
    groups[-1].extend(range(axis + 1))
    ok = all(shape[a] == 1 for a in range(axis + 1))
    return list(reversed(groups)) if ok else None
