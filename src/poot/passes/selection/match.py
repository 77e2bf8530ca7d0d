"""Attention under the mask of a selection becomes one `selected_attention` eqn without a mask.

before   ids = select(up > -N, -up, -1)                     after   ids = block_topk(scores, p)
         o = attention(q, k, v, mask) mask_fill=-inf                o = selected_attention(q, k, v,
         with the mask of the blocks that ids names                                        ids, p)
Needs canonical form, and attention formed. Leaves attention whose mask is a selection that can't
be proved as it is, with the reason as a note. A key that is not visited is no longer read: a NaN in
its value no longer poisons.
"""

from __future__ import annotations

import math

from poot.errors import TypeRuleError
from poot.ir.attrs import strs_attr
from poot.ir.graph import Eqn, Graph, Var
from poot.ir.rules.selected import SELECTED_OPERANDS
from poot.limits import DeviceLimits
from poot.passes.attention.declines import Decline, claim
from poot.passes.engine import Outcome, Rule, Scope, rewrite
from poot.passes.selection.mask import Selection, selection_of
from poot.passes.selection.scores import fuse_scores, may_score, scale_scores
from poot.passes.selection.topk import fuse_topk


def fuse_selection(graph: Graph, limits: DeviceLimits) -> Outcome:
    """The graph with every selection that is proved as `block_topk`, and attention under one as
    `selected_attention`, on every target; and where the device has matrix units that a kernel of
    ours takes, the scores that are selected by as `block_scores`."""
    declared = frozenset(v.id for v in graph.validations)

    def attention(eqn: Eqn, scope: Scope) -> tuple[Var, ...] | None:
        try:
            return _fused(eqn, scope, declared)
        except Decline as why:
            scope.decline(f"no selected attention: {why.reason}", why.loc or eqn.loc)
            return None

    rules = (
        Rule("block_topk", ("select",), fuse_topk),
        Rule("selected_attention", ("attention",), attention),
    )
    if may_score(limits):
        rules = (
            *rules,
            Rule("block_scores", ("reduce",), fuse_scores),
            Rule("scaled", ("mul",), scale_scores),
        )
    return rewrite(graph, rules)


def _fused(eqn: Eqn, scope: Scope, declared: frozenset[int]) -> tuple[Var, ...] | None:
    at = dict(zip(strs_attr(eqn, "operands"), eqn.ins, strict=True))
    if "mask" not in at or eqn.attr("mask_fill") is None:
        return None
    heads = at["q"].type.shape[1]
    found = selection_of(scope, at["mask"], heads, declared)
    if found is None:
        return None
    claim(eqn.attr("mask_fill") == -math.inf, "keys are hidden by a number other than -inf")
    for name in ("causal", "window"):
        claim(eqn.attr(name) is None, f"keys are hidden by {name} too")
    claim("bias" not in at, "a bias is added to the scores")
    claim(scope.uses(at["mask"]) == 1, "the mask is read elsewhere")
    return _emitted(eqn, at, found, scope)


def _emitted(eqn: Eqn, at: dict[str, Var], found: Selection, scope: Scope) -> tuple[Var, ...]:
    batch, _, rows, _ = at["q"].type.shape
    at = {**at, "ids": found.ids, "positions": found.positions.written(scope, (batch, rows))}
    names = tuple(n for n in SELECTED_OPERANDS if n in at)
    attrs: dict[str, object] = {"ratio": found.ratio}
    if found.always != "tail":
        attrs["always"] = found.always
    attrs |= {n: eqn.attr(n) for n in ("scale", "softcap", "lse") if eqn.attr(n) is not None}
    try:
        outs = scope.emit_all(
            "selected_attention", *(at[n] for n in names), operands=names, **attrs
        )
    except TypeRuleError as e:
        raise Decline(e.message) from None
    forms = "".join(f", {n} {at[n].type}" for n in names[3:])
    scope.did(
        f"selected_attention q {at['q'].type} k {at['k'].type}{forms}, blocks of {found.ratio}, "
        f"{found.always}",
        eqn.loc,
    )
    return outs
