"""What a chain reads of its cache: which rows are live, and whether they lie in pools.

A form that is not proved is given up by itself: the rest fuses, with the reason as a note.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from poot.ir.graph import Eqn, Var
from poot.passes.attention.heads import KeysAndValues, keys_and_values, n_rep_of
from poot.passes.attention.live import Length, length_of, live_length
from poot.passes.attention.mask import score_lengths
from poot.passes.attention.paged import Paged, paged
from poot.passes.attention.proofs import Proofs
from poot.passes.attention.rows import Dims
from poot.passes.attention.scores import Stage
from poot.passes.attention.views import view_of
from poot.passes.engine import Scope


@dataclass(frozen=True, slots=True)
class Cache:
    """The keys and values; the live length, if they are not read past it; the pools and the map, if
    they are read where they lie. `is_plain`: no row is selected to zero past a limit."""

    parts: KeysAndValues
    live: Length | None
    pages: Paged | None
    is_plain: bool


@dataclass(frozen=True, slots=True)
class Reader:
    """The chain that reads: its two matmuls, its result, and the masks of its scores."""

    scores: Eqn
    product: Eqn
    root: Eqn
    masks: tuple[Stage, ...]
    dims: Dims


def cache_of(
    scope: Scope, reader: Reader, proofs: Proofs, is_written: Callable[[Var], bool]
) -> Cache:
    """What a chain reads. `is_written`: whether a value is written over before the chain's result.
    Raises Decline."""
    scores, product, dims = reader.scores, reader.product, reader.dims
    parts = keys_and_values(scope, scores, product, dims, zeroed=True)
    is_plain = not parts.key_claims and not parts.value_claims
    live = _live(scope, reader, parts, proofs)
    if isinstance(live, str):
        scope.decline(f"not live: {live}", scores.loc)
    if not isinstance(live, Length):
        live = None
        parts = keys_and_values(scope, scores, product, dims, zeroed=False)
    if parts.joined_why is not None:
        scope.decline(f"not split: {parts.joined_why}", scores.loc)
    pages = paged(scope, parts.keys, parts.values, dims, n_rep_of(parts), proofs)
    if isinstance(pages, Paged):
        pages = _why_gathered(scope, reader, parts, pages, is_written) or pages
    if isinstance(pages, str):
        scope.decline(f"not paged: {pages}", scores.loc)
    return Cache(parts, live, pages if isinstance(pages, Paged) else None, is_plain)


def _live(
    scope: Scope, reader: Reader, parts: KeysAndValues, proofs: Proofs
) -> Length | str | None:
    dims, lead = reader.dims, len(reader.product.out.type.shape) - 2
    split = parts.value_split
    of_keys = [
        length_of(c, list(range(dims.split)), len(c.steps) - 1, dims.keys) for c in parts.key_claims
    ]
    of_values = [length_of(c, list(range(split)), lead, dims.keys) for c in parts.value_claims]
    of_scores = score_lengths(scope, reader.masks, dims)
    return live_length(of_keys, of_values, of_scores, dims, proofs)


def _why_gathered(
    scope: Scope,
    reader: Reader,
    parts: KeysAndValues,
    pages: Paged,
    is_written: Callable[[Var], bool],
) -> str | None:
    """Why pools that a map is proved to read are gathered all the same."""
    q = view_of(scope, reader.scores.ins[0], scaled=True).base
    dtypes = {q.type.dtype, reader.root.out.type.dtype, pages.k.type.dtype}
    if len(dtypes) > 1:
        return f"pools of {pages.k.type.dtype} would be cast whole"
    made = [scope.producer(rows.base) for rows in (parts.keys, parts.values)]
    pools = [view_of(scope, eqn.ins[0]).base for eqn in made if eqn is not None]
    if any(is_written(pool) for pool in pools):
        return "a pool is written over before the attention that reads it"
    return None
