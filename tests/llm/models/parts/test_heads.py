"""Attention of each head: which weights, and how fused ones are cut."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from poot.llm.models.parts.heads import heads_shapes, mix_heads
from poot.llm.models.parts.kinds import Heads, Norm
from poot.llm.models.parts.step import Cache, FixedStep
from tests.support.traced import normal, value

KIND = Heads(4, 2, 8, scale=0.3)
WIDTH, ROWS = 12, 3


def mixed(kind: Heads, held: dict[str, np.ndarray], h: np.ndarray) -> np.ndarray:
    names = list(held)
    empty = np.zeros((1, kind.kv_heads, 8, kind.head_dim), np.float32)

    def run(x, k, v, *values):
        step = FixedStep(ROWS, 8, x.reshape(-1)[0].astype("i32") * 0 + 2)
        w = dict(zip(names, values, strict=True))
        return mix_heads(kind, w, x, Cache(k, v), step, None)[0]

    return value(run, h, empty, empty, *held.values())


def test_the_weights_follow_the_kind():
    assert heads_shapes(KIND, WIDTH) == {
        "q": (32, 12), "k": (16, 12), "v": (16, 12), "out": (12, 32)
    }  # fmt: skip
    rich = replace(KIND, is_biased=True, is_out_biased=True, is_sunk=True, qk_norm=Norm(1e-6))
    extra = heads_shapes(rich, WIDTH).keys() - heads_shapes(KIND, WIDTH).keys()
    assert extra == {"q_bias", "k_bias", "v_bias", "out_bias", "sink", "q_norm", "k_norm"}


@pytest.mark.parametrize("fused", ["rows", "heads"])
def test_a_fused_matrix_is_the_three_in_the_kinds_order(fused: str):
    kind = replace(KIND, kv_heads=4)
    held = {n: normal(i, *shape) for i, (n, shape) in enumerate(heads_shapes(kind, WIDTH).items())}
    h = normal(9, ROWS, WIDTH)
    three = [held[n] for n in "qkv"]
    if fused == "heads":
        together = np.stack([x.reshape(4, 8, WIDTH) for x in three], 1).reshape(96, WIDTH)
    else:
        together = np.concatenate(three)
    got = mixed(replace(kind, fused=fused), {"qkv": together, "out": held["out"]}, h)
    np.testing.assert_allclose(got, mixed(kind, held, h), rtol=1e-5, atol=1e-5)


def test_what_is_projected_is_bounded_before_it_is_used():
    held = {n: normal(i, *shape) for i, (n, shape) in enumerate(heads_shapes(KIND, WIDTH).items())}
    h = normal(9, ROWS, WIDTH)
    made = {n: np.clip(h @ held[n].T, -0.5, 0.5) for n in "qkv"}
    same = {n: np.linalg.lstsq(h, made[n], rcond=None)[0].T.astype(np.float32) for n in "qkv"}
    got = mixed(replace(KIND, clip=0.5), held, h)
    np.testing.assert_allclose(got, mixed(KIND, held | same, h), rtol=1e-4, atol=1e-4)
    assert np.abs(got - mixed(KIND, held, h)).max() > 0.1
