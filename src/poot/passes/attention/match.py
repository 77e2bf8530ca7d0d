"""softmax(score(q, k)) v becomes one `attention` eqn.

before   s = mask(softcap(matmul(q, transpose(k)) * scale))     after   o = attention(q, k, v, mask)
         o = matmul(softmax(s), v)
Needs canonical form: constants on the right, moves merged. Leaves a chain that can't be proved to
be attention as it is, with the reason as a note. Scales and additive masks are reassociated; the
intermediates of 16-bit chains become f32.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace

from poot.errors import TypeRuleError
from poot.ir.graph import Eqn, Graph, Var
from poot.ir.walk import results, users
from poot.limits import DeviceLimits
from poot.passes.attention.cache import Reader, cache_of
from poot.passes.attention.dead_rows import match_dead_rows, without_dead_rows
from poot.passes.attention.declines import Decline, claim
from poot.passes.attention.heads import Operands, read_operands
from poot.passes.attention.hides import Assumed
from poot.passes.attention.log_softmax import match_log_softmax
from poot.passes.attention.logsum import LogSum, find_log_sums
from poot.passes.attention.mask import Masks, cast_to, read_masks, read_sink, score_lengths
from poot.passes.attention.proofs import proofs_of
from poot.passes.attention.rows import Dims, dims_of
from poot.passes.attention.scores import Form, read_stages, trace_scores
from poot.passes.attention.softmax import (
    Chain,
    Softmax,
    match_exps,
    match_softmax,
    match_total,
    numerators,
    passed,
    passes,
)
from poot.passes.attention.turned import without_turns
from poot.passes.attention.views import reshaped
from poot.passes.canonicalize import canonicalize
from poot.passes.engine import Outcome, Rule, Scope, rewrite

# The dtypes that a target's generated attention has rows for.
_DTYPES: dict[str, tuple[str, ...]] = dict.fromkeys(
    ("spirv", "ptx", "hip", "llvm", "oracle"), ("f32", "f16", "bf16")
)
# Fills that a caller may assume to hide a key, as each dtype holds them.
_LOWEST = {"f32": -1e9, "bf16": -998244352.0, "f16": -3e4}
_OTHER_SUM = "the exps of scores are divided by something else than their sum over the keys"
_UPDATES = ("dynamic_update_slice", "scatter_update")


def fuse_attention(graph: Graph, limits: DeviceLimits, *, assume_hidden: bool = False) -> Outcome:
    """The graph with every chain that is proved to be attention as one eqn, chains whose scores are
    permuted among them (`turned.py`). With `assume_hidden` keys that a finite fill hides (-1e9 or
    below, in f16 -3e4) need not be visited."""
    as_it_is = _fused(graph, limits, assume_hidden=assume_hidden)
    turned = without_turns(graph)
    if turned is None:
        return as_it_is
    in_order = _fused(canonicalize(turned.graph, limits).graph, limits, assume_hidden=assume_hidden)
    if _many(in_order) <= _many(as_it_is):
        return as_it_is
    fired = Counter(dict(turned.fired)) + Counter(dict(in_order.fired))
    return replace(in_order, fired=tuple(sorted(fired.items())))


def _many(outcome: Outcome) -> int:
    """How many chains were fused."""
    return sum(note.kind == "did" for note in outcome.notes)


def _fused(graph: Graph, limits: DeviceLimits, *, assume_hidden: bool) -> Outcome:
    matcher = Matcher(graph, limits, assume_hidden=assume_hidden)
    rules = (
        Rule("attention", ("matmul",), matcher.at_product),
        Rule("attention_divided_late", ("div", "mul"), matcher.at_division),
        Rule("log_sum_exp", ("select",), matcher.at_log_sum),
    )
    return rewrite(graph, rules)


class Matcher:
    """The rules, with the device's limits and the graph's readers at hand."""

    def __init__(self, graph: Graph, limits: DeviceLimits, *, assume_hidden: bool = False) -> None:
        self.limits = limits
        self.assume_hidden = assume_hidden
        self.users = users(graph)
        self.results = {v.id for v in results(graph)}
        self.log_sums = find_log_sums(graph)
        self.proofs = proofs_of(graph)
        self.overwritten = _overwritten(graph)
        self.positions = {e.outs[0].id: n for n, e in enumerate(graph.eqns)}
        self.replaced_sums: dict[int, Var] = {}  # id of a log-sum-exp -> the eqn's second result

    def at_product(self, eqn: Eqn, scope: Scope) -> Var | None:
        """matmul(softmax(scores), values)."""
        chain = Chain()
        try:
            weights, tested = match_dead_rows(scope, eqn.ins[0], chain)
            found = match_softmax(scope, weights, chain) or match_log_softmax(scope, weights, chain)
            if found is None:
                return self._near_miss(weights, eqn, scope)
            if not _tests(scope, tested, found):
                return None
            return self._fused(eqn, eqn, found, chain, scope, zeroed=tested is not None)
        except Decline as why:
            scope.decline(f"attention not fused: {why.reason}", why.loc or eqn.loc)
            return None

    def _near_miss(self, weights: Var, product: Eqn, scope: Scope) -> None:
        """Raises Decline where the weights are exps of scores, and no softmax of them."""
        exps, over = numerators(scope, weights)
        found = match_exps(scope, exps, Chain())
        if found is None or trace_scores(scope, found.scores, Chain()) is None:
            return
        if over:
            raise Decline(_OTHER_SUM, over)
        if not self._is_divided(product):
            raise Decline(
                "the weights are exps of scores that nothing divides by their sum", found.loc
            )

    def _is_divided(self, product: Eqn) -> bool:
        """Whether a division reads the product, so that `at_division` has the last word."""
        stack = [product]
        while stack:
            eqn = stack.pop()
            for reader in self.users.get(eqn.out.id, ()):
                if passes(reader):
                    stack.append(reader)
                is_divided = reader.op == "div" or self._is_by_recip(reader)
                if is_divided and reader.ins[0] == eqn.out:
                    return True
        return False

    def _is_by_recip(self, eqn: Eqn) -> bool:
        by = self.log_sums.made.get(eqn.ins[1].id) if eqn.op == "mul" else None
        return by is not None and by.op == "recip"

    def at_division(self, eqn: Eqn, scope: Scope) -> Var | None:
        """matmul(exp(scores), values) divided by the sum of the exps, or times its reciprocal."""
        chain = Chain()
        if eqn.out.type.elems == 0:
            return None
        try:
            product = scope.producer(passed(scope, eqn.ins[0], chain))
            if product is None or product.op != "matmul":
                return None
            found = match_exps(scope, product.ins[0], chain)
            total = _divisor(scope, eqn, chain)
            if found is None or total is None:
                return None
            if not match_total(scope, total, found, chain, eqn.out.type.shape):
                if trace_scores(scope, found.scores, Chain()) is not None:
                    raise Decline(_OTHER_SUM)
                return None
            chain.add(product)
            return self._fused(eqn, product, found, chain, scope)
        except Decline as why:
            scope.decline(f"attention not fused: {why.reason}", why.loc or eqn.loc)
            return None

    def at_log_sum(self, eqn: Eqn, scope: Scope) -> Var | None:
        """The log-sum-exp of a row whose attention was fused with it."""
        got = self.replaced_sums.get(eqn.out.id)
        return got and reshaped(scope, got, eqn.out.type.shape)

    def _log_sum(self, root: Eqn, found: Softmax, chain: Chain) -> LogSum | None:
        """The log-sum-exp that the chain's own reductions give after root, or None."""
        if found.factor != 1.0 or found.is_lowered:
            return None
        folds = {e.out.id for e in chain.eqns.values() if e.op == "reduce"}
        sums = [self.log_sums.by_total.get(total) for total in folds]
        if found.sink is not None:
            sums = [self.log_sums.beside_sink(found.scores, folds)]
        for got in sums:
            after = got is not None and got.position > self.positions.get(root.outs[0].id, 0)
            if got is not None and after and got.top in folds and got.root.out.type.dtype == "f32":
                return got
        return None

    def _fused(
        self,
        root: Eqn,
        product: Eqn,
        found: Softmax,
        chain: Chain,
        scope: Scope,
        *,
        zeroed: bool = False,
    ) -> Var | None:
        """The attention eqn in root's place. Where `zeroed`, a row that sees no key is 0."""
        scores = trace_scores(scope, found.scores, chain)
        if scores is None:
            return None
        log_sum = self._log_sum(root, found, chain)
        self._check_readers(root, product, tuple(chain.eqns.values()), log_sum, scope)
        dims = dims_of(scores.matmul)
        claim(
            product.ins[0].type.shape[-2:] == (dims.rows, dims.keys),
            "the weights' rows are not those of the scores",
            product.loc,
        )
        form = read_stages(scores.stages, found.factor, found.loc)
        self._check_device(dims, scores.matmul.loc)
        reader = Reader(scores.matmul, product, root, form.masks, dims)
        try:
            return self._emitted(reader, found, form, log_sum, scope, zeroed)
        except TypeRuleError as e:
            raise Decline(e.message, root.loc) from None

    def _emitted(
        self,
        reader: Reader,
        found: Softmax,
        form: Form,
        log_sum: LogSum | None,
        scope: Scope,
        zeroed: bool,
    ) -> Var:
        root, dims = reader.root, reader.dims
        end = self.positions.get(root.outs[0].id, 0)
        cache = cache_of(
            scope, reader, self.proofs, lambda v: self.overwritten.get(v.id, end) < end
        )
        operands = read_operands(scope, reader.scores, cache.parts, dims, cache.pages)
        at = {"q": operands.q, "k": operands.k, "v": operands.v}
        dtypes = {x.type.dtype for x in (*at.values(), root.out)}
        dtype = dtypes.pop() if len(dtypes) == 1 else "f32"
        known = _DTYPES.get(self.limits.target, ())
        claim(dtype in known, f"{self.limits.target} has no attention in {dtype}", root.loc)
        assumed = Assumed(
            _LOWEST[dtype] if self.assume_hidden else -math.inf,
            self.proofs if cache.is_plain else None,
        )
        masks = read_masks(scope, form.masks, dims, dtype, cache.live, assumed)
        if operands.k_shared is not None:
            at["k_shared"] = operands.k_shared
        at = {name: cast_to(scope, x, dtype) for name, x in at.items()}
        if operands.read is not None:
            at["read"] = operands.read
        length = cache.live or masks.length
        if cache.is_plain and length is None and score_lengths(scope, form.masks, dims):
            scope.decline("not live: keys and values past the length are not selected to zero")
        if length is not None:
            at["len"] = length.written(scope, dims.batch)
        at |= dict(masks.operands)
        if found.sink is not None:
            at["sink"] = read_sink(scope, found.sink, found.scores.type.shape, dims, found.loc)
        attrs = _attrs(operands, form, masks, log_sum is not None or zeroed)
        outs = scope.emit_all("attention", *at.values(), operands=tuple(at), **attrs)
        if log_sum is not None:
            self.replaced_sums[log_sum.root.out.id] = outs[1]
        assuming = ", finite masks assumed to hide" if self.assume_hidden else ""
        scope.did(_summary(at, form, masks, dims) + assuming, root.loc)
        out = without_dead_rows(scope, outs[0], outs[1]) if zeroed else outs[0]
        return reshaped(scope, cast_to(scope, out, root.out.type.dtype), root.out.type.shape)

    def _check_readers(
        self,
        root: Eqn,
        product: Eqn,
        chain: tuple[Eqn, ...],
        log_sum: LogSum | None,
        scope: Scope,
    ) -> None:
        """Raises Decline where an intermediate has a reader outside of the chain and of its
        log-sum-exp; the values' operand of the last product is outside."""
        inside: dict[int, int] = {}
        others = log_sum.eqns if log_sum is not None else ()
        replaced = {e.outs[0].id: e for e in (*chain, *others, root)}
        ends = {root.outs[0].id, log_sum.root.out.id if log_sum is not None else -1}
        for eqn in replaced.values():
            for v in eqn.ins[:1] if eqn is product else eqn.ins:
                inside[v.id] = inside.get(v.id, 0) + 1
        for eqn in replaced.values():
            for v in eqn.outs:
                if v.id not in ends and scope.uses(v) != inside.get(v.id, 0):
                    what = _named(scope, eqn, root, product)
                    self._decline_reader(v, eqn, product, replaced, what)

    def _decline_reader(
        self, v: Var, eqn: Eqn, product: Eqn, replaced: dict[int, Eqn], what: str
    ) -> None:
        if v.id in self.results:
            raise Decline(f"{what} an output", eqn.loc)
        readers = self.users.get(v.id, ())
        others = [e for e in readers if e.outs[0].id not in replaced]
        others += [e for e in readers if e.outs == product.outs]
        reader = f", by {others[0].op} at {others[0].loc}" if others else ""
        raise Decline(f"{what} read elsewhere{reader}", eqn.loc)

    def _check_device(self, dims: Dims, loc: str) -> None:
        groups = dims.batch * dims.heads * dims.rows
        x, y = self.limits.grid[:2]
        claim(
            -(-groups // max(x, 1)) <= y,
            f"{groups} query rows fit no grid of {x} by {y} on {self.limits.name}",
            loc,
        )


def _tests(scope: Scope, tested: Var | None, found: Softmax) -> bool:
    """Whether what a select of dead rows tests, if there is one, are the softmax's own scores."""
    if tested is None:
        return True
    plain = found.factor == 1.0 and not found.is_lowered
    return plain and passed(scope, tested, Chain()) == passed(scope, found.scores, Chain())


def _named(scope: Scope, eqn: Eqn, root: Eqn, product: Eqn) -> str:
    """What eqn of a chain makes, for people, with its verb."""
    inner = Chain()
    weights = scope.producer(passed(scope, product.ins[0], inner))
    made = (eqn, *(scope.producer(v) for v in eqn.ins))
    if root is product and (eqn is weights or eqn.outs[0].id in inner.eqns):
        return f"the weights ({eqn.op}) are"
    if eqn.op in ("log", "add") and any(e is not None and e.op == "log" for e in made):
        return f"the log-sum-exp ({eqn.op}) is"
    return f"an intermediate ({eqn.op}) is"


def _divisor(scope: Scope, eqn: Eqn, chain: Chain) -> Var | None:
    """b where eqn is a / b or a * recip(b)."""
    if eqn.op == "div":
        return eqn.ins[1]
    by = scope.producer(eqn.ins[1])
    if by is None or by.op != "recip":
        return None
    chain.add(by)
    return by.ins[0]


def _attrs(operands: Operands, form: Form, masks: Masks, lse: bool) -> dict[str, object]:
    attrs: dict[str, object] = dict(masks.attrs)
    attrs["scale"] = form.scale * operands.factor
    if form.softcap is not None:
        attrs["softcap"] = form.softcap
    if lse:
        attrs["lse"] = True
    return attrs


def _summary(at: dict[str, Var], form: Form, masks: Masks, dims: Dims) -> str:
    """What was fused, for people."""
    n_rep = dims.heads // at["k"].type.shape[1]
    parts = [f"attention q {at['q'].type} k {at['k'].type} v {at['v'].type} n_rep = {n_rep}"]
    parts += [f"{name} {x.type}" for name, x in at.items() if name not in "qkv"]
    parts += [f"{name} {value}" for name, value in masks.attrs]
    if form.softcap is not None:
        parts.append(f"softcap {form.softcap:g}")
    return ", ".join(parts)


def _overwritten(graph: Graph) -> dict[int, int]:
    """For each value that an update replaces a part of, where the first such eqn stands."""
    found: dict[int, int] = {}
    for n, eqn in enumerate(graph.eqns):
        if eqn.op in _UPDATES:
            found.setdefault(eqn.ins[0].id, n)
    return found
