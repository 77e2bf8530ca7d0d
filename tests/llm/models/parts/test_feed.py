"""Feed-forwards: which experts a row uses, and that how they are reached changes nothing."""

from __future__ import annotations

import numpy as np
import pytest

from poot.llm.models.parts import feed
from poot.llm.models.parts.kinds import Dense, Experts, Router
from poot.ops.array import Array
from tests.support.traced import normal, value

COUNT, WIDTH, INNER, ROWS = 8, 12, 10, 5


def drawn(shapes: dict[str, tuple[int, ...]]) -> dict[str, np.ndarray]:
    return {name: normal(i, *shape) for i, (name, shape) in enumerate(shapes.items())}


def fed(kind: Experts, h: np.ndarray, held: dict[str, np.ndarray]) -> np.ndarray:
    names = list(held)

    def run(x: Array, *values: Array) -> Array:
        return feed.feed_experts(kind, dict(zip(names, values, strict=True)), x)

    return value(run, h, *held.values())


ROUTERS = {
    "softmax": Router(2),
    "not divided, scaled": Router(3, is_normal=False, scale=1.7),
    "sigmoid in groups": Router(2, is_sigmoid=True, groups=4, groups_used=2),
}


def shares_of(router: Router, logits: np.ndarray, correction: np.ndarray) -> np.ndarray:
    """[rows, count] in f64, row by row."""
    out = np.zeros(logits.shape)
    for row, line in zip(out, logits.astype(np.float64), strict=True):
        scores = 1 / (1 + np.exp(-line)) if router.is_sigmoid else np.exp(line) / np.exp(line).sum()
        ranked = scores + correction if router.is_sigmoid else scores.copy()
        if router.groups > 1:
            apart = ranked.reshape(router.groups, -1)
            worth = np.sort(apart, 1)[:, -2:].sum(1) if router.is_sigmoid else apart.max(1)
            for group in np.argsort(-worth)[router.groups_used :]:
                apart[group] = -np.inf
        chosen = np.argsort(-ranked)[: router.used]
        row[chosen] = scores[chosen]
        row /= row.sum() if router.is_normal else 1.0
        row *= router.scale
    return out


@pytest.mark.parametrize("gather", [0, 1 << 20], ids=["gathered", "all"])
@pytest.mark.parametrize("name", ROUTERS)
def test_a_row_is_the_sum_of_its_experts_by_share(
    name: str, gather: int, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(feed, "GATHER", gather)
    router = ROUTERS[name]
    kind = Experts(COUNT, INNER, router, shared=6)
    held, h = drawn(feed.experts_shapes(kind, WIDTH)), normal(99, ROWS, WIDTH)
    wide = {n: x.astype(np.float64) for n, x in held.items()}
    shares = shares_of(router, h @ wide["router"].T, wide.get("correction", np.zeros(COUNT)))

    def one(gate: np.ndarray, up: np.ndarray, down: np.ndarray) -> np.ndarray:
        a = h @ gate.T
        return (a / (1 + np.exp(-a)) * (h @ up.T)) @ down.T

    want = one(wide["shared_gate"], wide["shared_up"], wide["shared_down"])
    for e in range(COUNT):
        each = one(*(wide[f"each_{n}"][e] for n in ("gate", "up", "down")))
        want = want + shares[:, e : e + 1] * each
    np.testing.assert_allclose(fed(kind, h, held), want, rtol=2e-5, atol=2e-4)


def test_an_expert_that_no_row_uses_reaches_no_row_even_if_it_overflows():
    kind = Experts(COUNT, INNER, Router(1))
    held, h = drawn(feed.experts_shapes(kind, WIDTH)), np.abs(normal(3, ROWS, WIDTH))
    held["router"][:] = -1.0
    held["router"][2] = 1.0
    want = fed(kind, h, held)
    held["each_down"][5] = np.inf
    np.testing.assert_array_equal(fed(kind, h, held), want)


def test_a_fused_matrix_is_gate_then_up():
    kind, apart = Dense(INNER, "gelu", is_fused=True), Dense(INNER, "gelu")
    held, h = drawn(feed.dense_shapes(kind, WIDTH)), normal(1, ROWS, WIDTH)
    both, down = held["gate_up"], held["down"]

    def fused(x: Array, a: Array, b: Array) -> Array:
        return feed.feed_dense(kind, {"gate_up": a, "down": b}, x)

    def split(x: Array, a: Array, b: Array, c: Array) -> Array:
        return feed.feed_dense(apart, {"gate": a, "up": b, "down": c}, x)

    got = value(fused, h, both, down)
    want = value(split, h, both[:INNER], both[INNER:], down)
    np.testing.assert_allclose(got, want, rtol=1e-6, atol=1e-5)
