"""Tokens chosen on the device against those chosen by the host, option by option."""

from __future__ import annotations

import numpy as np
import pytest

import poot
from poot.llm.pick import CANDIDATES, choice_slots, gumbel, pick
from poot.llm.sampling import Sampling, sample, uniform
from poot.llm.stepper import seen_bits
from poot.trace import slot, trace
from tests.support.everywhere import compile_on, on

VOCAB, ROWS = 500, 8
GRAPH = trace(pick, (slot((ROWS, VOCAB), "f32"), choice_slots(ROWS, VOCAB)))
OPTIONS = {
    "temperature": Sampling(temperature=0.9),
    "hot": Sampling(temperature=30.0),
    "top_k": Sampling(temperature=1.5, top_k=7),
    "top_k of 1": Sampling(temperature=9.0, top_k=1),
    "top_p": Sampling(temperature=0.8, top_p=0.6),
    "tiny top_p": Sampling(temperature=1.0, top_p=1e-6),
    "top_k and top_p": Sampling(temperature=1.3, top_k=20, top_p=0.8),
    "min_p": Sampling(temperature=1.5, min_p=0.1),
    "all": Sampling(temperature=1.2, top_k=30, top_p=0.9, min_p=0.02, penalty=1.4),
    "penalty, greedy": Sampling(penalty=2.5),
    "reward": Sampling(temperature=1.0, penalty=0.5),
    "greedy": Sampling(),
}


def logits_of(seed: int) -> np.ndarray:
    """Rows with a wide head, ties and tokens that may not be chosen."""
    rng = np.random.default_rng(seed)
    made = (rng.standard_normal((ROWS, VOCAB)) * 3).astype(np.float32)
    made[:, rng.integers(0, VOCAB, 20)] = -np.inf
    made[:, 40:44] = made[:, 40:41]
    return made


def chosen(
    session: poot.Session, logits: np.ndarray, how: Sampling, step: int, seen: list[int]
) -> list[int]:
    """The device's choices; row i draws with seed how.seed + i."""

    def full(value: float, dtype: type) -> np.ndarray:
        return np.full(ROWS, value, dtype)

    out = session.step(
        logits=logits,
        **{
            "how.temperature": full(how.temperature, np.float32),
            "how.top_k": full(how.top_k, np.int32),
            "how.top_p": full(how.top_p, np.float32),
            "how.min_p": full(how.min_p, np.float32),
            "how.penalty": full(how.penalty, np.float32),
            "how.seed": (how.seed + np.arange(ROWS)).astype(np.uint32),
            "how.step": full(step, np.int32),
            "how.seen": np.tile(seen_bits(seen, -(-VOCAB // 32)), (ROWS, 1)),
        },
    )
    return [int(t) for t in np.asarray(out).reshape(-1)]


def by_host(logits: np.ndarray, how: Sampling, step: int, seen: list[int]) -> list[int]:
    made: list[int] = []
    for i, row in enumerate(logits):
        options = {name: getattr(how, name) for name in
                   ("temperature", "top_k", "top_p", "min_p", "penalty")}  # fmt: skip
        made.append(sample(row, Sampling(seed=how.seed + i, **options), step, seen))
    return made


@pytest.mark.parametrize("name", list(OPTIONS))
@on("oracle", "cpu", "vulkan", "wgpu")
def test_the_device_chooses_what_the_host_chooses(name: str, target: str):
    """Equal, but where two scores are within rounding: none of these 160 draws is so close that
    more than one may differ."""
    session = compile_on(target, GRAPH).bind()
    rng = np.random.default_rng(5)
    differ = unsure = 0
    for step in range(20):
        logits, seen = logits_of(step), [int(t) for t in rng.integers(0, VOCAB, 60)]
        got = chosen(session, logits, OPTIONS[name], step, seen)
        want = by_host(logits, OPTIONS[name], step, seen)
        unsure += sum(t < 0 for t in got)
        differ += sum(g not in (w, -1) for g, w in zip(got, want, strict=True))
    assert differ <= 1
    assert unsure == 0 or name == "top_p"
    assert unsure < 40


def test_a_row_that_needs_more_candidates_leaves_the_choice_to_the_host():
    session = compile_on("oracle", GRAPH).bind()
    flat = np.zeros((ROWS, VOCAB), np.float32)
    wide = Sampling(temperature=1.0, top_k=CANDIDATES + 1)
    assert chosen(session, flat, wide, 0, []) == [-1] * ROWS
    assert chosen(session, flat, Sampling(temperature=1.0, top_p=0.9), 0, []) == [-1] * ROWS
    assert min(chosen(session, flat, Sampling(temperature=1.0, top_k=CANDIDATES), 0, [])) >= 0
    assert min(chosen(session, flat, Sampling(temperature=1.0), 0, [])) >= 0


@on("oracle", "cpu", "vulkan", "wgpu")
def test_the_noise_is_the_hosts(target: str):
    graph = trace(
        lambda seed, step: gumbel(seed, step, 4096), (slot((2,), "u32"), slot((2,), "i32"))
    )
    session = compile_on(target, graph).bind()
    seeds, steps = np.array([3, 2**32 - 1], np.uint32), np.array([0, 12345], np.int32)
    got = np.asarray(session.step(seed=seeds, step=steps))
    for i in range(2):
        want = -np.log(-np.log(uniform(int(seeds[i]), int(steps[i]), 4096)))
        np.testing.assert_allclose(got[i], want, atol=2e-5)
    assert got.max() > 7  # the far tail, where -log(u) is a series, is among them
