"""The best candidate blocks of each row become one `block_topk` eqn.

before   at = topk(select(block < C, scores, nan), k)             after   ids = block_topk(scores,
         up = topk(select(at < C, -at, -N), k)                                    positions)
         ids = select(up > -N, -up, -1)
Needs canonical form. Leaves a chain that is read elsewhere as it is, with the reason as a note.
"""

from __future__ import annotations

import math

from poot.ir.graph import Eqn, Var
from poot.passes.engine import Scope
from poot.passes.selection.pattern import (
    Bind,
    Found,
    Index,
    Number,
    Of,
    match,
    match_eqn,
    number_at,
    var_at,
)
from poot.passes.selection.rows import count_of, is_one_a_row

_FOUND = Of("topk", (Bind("ranked"),), out=1)
_TURNED = Of(
    "select",
    (Of("lt", (Bind("found"), Bind("count"))), Of("neg", (Bind("found"),)), Number("least")),
)
_KEPT = Of("gt", (Bind("up"), Number("least")))
_GONE = Of("le", (Bind("up"), Number("least")))
_ROOTS = (
    Of("select", (_KEPT, Of("neg", (Bind("up"),)), Number(-1))),
    Of("select", (_GONE, Number(-1), Of("neg", (Bind("up"),)))),
)
_UP = Of("topk", (_TURNED,))
_RANKED = Of("select", (Of("lt", (Index(), Bind("count"))), Bind("scores"), Number(math.nan)))


def fuse_topk(eqn: Eqn, scope: Scope) -> Var | None:
    """The eqn in the place of the last select."""
    found = _chain(scope, eqn)
    if found is None:
        return None
    scores, count = var_at(found, "scores"), var_at(found, "count")
    batch, _, rows, blocks = scores.type.shape
    counted = count_of(scope, count)
    why = _why_not(scope, found)
    if why is None and not is_one_a_row(count, batch, rows):
        why = f"the candidates' count is not one a row, {count.type}"
    if why is not None:
        scope.decline(f"no block_topk: {why}", eqn.loc)
        return None
    always = "tail" if counted.place.plus >= 1 else "own"
    positions = counted.place.written(scope, (batch, rows), -1 if always == "tail" else 0)
    k = eqn.out.type.shape[3]
    kind = {} if always == "tail" else {"always": always}
    ids = scope.emit("block_topk", scores, positions, k=k, ratio=counted.ratio, **kind)
    scope.did(
        f"block_topk {k} of {blocks} blocks of {counted.ratio}, {always}, scores {scores.type}",
        eqn.loc,
    )
    return ids


def _chain(scope: Scope, eqn: Eqn) -> Found | None:
    """The chain's values, where it is one over scores [B,Hs,Lq,N]."""
    found = match_eqn(scope, eqn, _ROOTS[0]) or match_eqn(scope, eqn, _ROOTS[1])
    for name, pattern in (("up", _UP), ("found", _FOUND), ("ranked", _RANKED)):
        found = match(scope, var_at(found, name), pattern, found) if found else None
    if found is None:
        return None
    scores = var_at(found, "scores")
    is_whole = scores.type == var_at(found, "ranked").type and len(scores.type.shape) == 4
    fits = is_whole and number_at(found, "least") == -scores.type.shape[3]
    return found if fits and scores.type.dtype in ("f32", "f16", "bf16") else None


def _why_not(scope: Scope, found: Found) -> str | None:
    for name, readers in (("ranked", 1), ("found", 2), ("up", 2)):
        if scope.uses(var_at(found, name)) != readers:
            return f"an intermediate ({name}) is read elsewhere"
    return None
