"""Whole kernels wave by wave: the wgmma prefill and the mma decode, right as written and caught
when broken.
"""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from poot.codegen.kir.ops import KIR_OPS
from poot.codegen.kir.sim import Stats, TensorMap, simulate
from poot.codegen.kir.sim.exact import WAVES
from poot.codegen.kir.text import parse
from poot.errors import SimulationError
from tests.support.kernels import kernel_text, run_kernel

BF16 = ml_dtypes.bfloat16
HEADS, ROWS, WIDTH = 2, 256, 128


def test_the_wave_machine_has_every_op():
    assert sorted({**WAVES.makers, **WAVES.waiting}) == sorted(KIR_OPS)


def attention(q: np.ndarray, k: np.ndarray, v: np.ndarray) -> np.ndarray:
    q, k, v = (x.astype(np.float64) for x in (q, k, v))
    s = q @ k.T * q.shape[-1] ** -0.5
    p = np.exp(s - s.max(-1, keepdims=True))
    return p / p.sum(-1, keepdims=True) @ v


def normal(seed: int, *shape: int, scale: float = 1.0) -> np.ndarray:
    return (np.random.default_rng(seed).standard_normal(shape) * scale).astype(BF16)


def prefill(
    text: str, keys: int, groups: list[tuple[int, int]] | None = None
) -> tuple[float, Stats]:
    """Runs the prefill kernel; the error of the groups that ran, relative to their norm, and what
    it did.
    """
    q, k, v = (normal(n, HEADS, ROWS, WIDTH, scale=3 if n == 0 else 1) for n in range(3))
    o = np.zeros((HEADS, ROWS, WIDTH), BF16)
    strides = (1, WIDTH, WIDTH * ROWS)
    maps = {
        f"t{n}": TensorMap(n, (WIDTH, ROWS if n in "qo" else keys, HEADS), strides) for n in "qkvo"
    }
    given = {"q": q, "k": k, "v": v, "o": o}
    stats = simulate(parse(text), given, (2, HEADS), groups, (keys,), blobs=maps)
    tiles = groups or [(t, h) for t in range(2) for h in range(HEADS)]
    got = np.stack([o[h, t * 128 : t * 128 + 128] for t, h in tiles]).astype(np.float64)
    want = np.stack(
        [attention(q[h, t * 128 : t * 128 + 128], k[h, :keys], v[h, :keys]) for t, h in tiles]
    )
    return float(np.linalg.norm(got - want) / np.linalg.norm(want)), stats


@pytest.mark.parametrize("keys", [64, 100, 250])
def test_prefill_by_a_producer_and_two_consumers_is_attention(keys):
    error, stats = prefill(kernel_text("prefill_wgmma"), keys, [(0, 0), (1, 1)])
    # P and the output are rounded to bf16 once each: 2^-9 relative, averaged over the row.
    assert error < 3e-3
    assert stats.loads["k"] == 2 * keys * WIDTH
    assert stats.loads["q"] == 2 * 128 * WIDTH


BROKEN = {
    "no wait for K": ("mbar_wait kfull[ks], kp", "", ("in-flight",)),
    "no wait for V": ("mbar_wait vfull[vs], vp", "", ("in-flight", "uninitialised")),
    "no wait for a free K slot": ("mbar_wait kempty[kstage], kfree", "", ("undefined",)),
    "K released before it was read": (
        "wait ts pending=1",
        "",
        ("in-flight", "race"),
    ),
    "V released before it was read": ("wait tp pending=0", "", ("in-flight", "race")),
    "V never released": (
        "if leads {\n          mbar_arrive vempty[vs]\n        }",
        "",
        ("deadlock",),
    ),
    "an arrival too few": (
        "mbar_init kempty[i] count=8",
        "mbar_init kempty[i] count=9",
        ("deadlock",),
    ),
    "bytes too few": (
        "mbar_arrive kfull[kstage] expect=16384",
        "mbar_arrive kfull[kstage] expect=8192",
        ("deadlock",),
    ),
    "O over a Q that is still read": (
        "barrier_sync alone threads=128\n      frag_store",
        "frag_store",
        ("race", "in-flight"),
    ),
    "O stored before all have written it": (
        "fence scope=async\n      barrier_sync alone threads=128",
        "fence scope=async",
        ("race", "uninitialised", "in-flight"),
    ),
    "no async fence": ("fence scope=async", "", ("race",)),
    "no wait for the store of O": ("wait b1 pending=0", "", ("in-flight",)),
    "the turn never comes": ("barrier_arrive other threads=256", "", ("deadlock",)),
    "barriers used before their init": (
        "barrier scope=group\n  roles",
        "roles",
        ("race", "uninitialised"),
    ),
}


@pytest.mark.parametrize("was, now, kinds", BROKEN.values(), ids=BROKEN.keys())
def test_a_broken_prefill_is_caught(was, now, kinds):
    text = kernel_text("prefill_wgmma")
    assert was in text
    with pytest.raises(SimulationError) as found:
        prefill(text.replace(was, now), 250, [(0, 0)])
    assert found.value.kind in kinds


def decode(text: str, lengths: tuple[int, int]) -> float:
    """Runs the decode kernel; the greatest error of its two units, relative to the norm. Rows past
    a length are NaN.
    """
    q, k, v = normal(0, 2, 4, 64, scale=2), normal(1, 2, 128, 64), normal(2, 2, 128, 64)
    o, lens = np.zeros((2, 4, 64), np.float32), np.array(lengths, np.int32)
    for unit in range(2):
        k[unit, lens[unit] :] = v[unit, lens[unit] :] = np.nan
    simulate(parse(text), {"q": q, "k": k, "v": v, "lens": lens, "o": o}, 2)
    errors: list[float] = []
    for unit in range(2):
        n = lens[unit]
        want = attention(q[unit], k[unit, :n], v[unit, :n])
        errors.append(float(np.linalg.norm(o[unit] - want) / np.linalg.norm(want)))
    return max(errors)


@pytest.mark.quick
@pytest.mark.parametrize("lengths", [(128, 1), (100, 33), (16, 17), (113, 64)])
def test_decode_by_warp_private_rings_is_attention(lengths):
    assert decode(kernel_text("decode_mma"), lengths) < 4e-3


DECODE_BROKEN = {
    "a stage too early": ("wait tb pending=1", "wait tb pending=2", ("in-flight",)),
    "no wait at all": ("    wait tb pending=1\n", "", ("in-flight",)),
    "a stage overwritten while it is read": (
        "wait tb pending=1\n    barrier scope=subgroup",
        "wait tb pending=1",
        ("race", "in-flight"),
    ),
    "values cleared without a barrier": (
        "    }\n      barrier scope=subgroup\n",
        "    }\n",
        ("race",),
    ),
    "parts read before they are written": (
        "  barrier scope=group\n  for it",
        "  for it",
        ("race", "uninitialised"),
    ),
}


@pytest.mark.quick
@pytest.mark.parametrize("was, now, kinds", DECODE_BROKEN.values(), ids=DECODE_BROKEN.keys())
def test_a_broken_decode_is_caught(was, now, kinds):
    text = kernel_text("decode_mma")
    assert was in text
    with pytest.raises(SimulationError) as found:
        decode(text.replace(was, now), (120, 100))
    assert found.value.kind in kinds


@pytest.mark.quick
def test_groups_may_wait_for_those_before_them():
    """Each group adds to what the one before left in a relaxed word: in launch order none waits for
    ever.
    """
    head = "param n: i32[4] rw align=4"
    body = """
      g: i32 = group_id axis=0
      l: i32 = lane
      one: bool = eq l, 0
      if one {
        before: i32 = sub g, 1
        at: i32 = max before, 0
        var seen: i32 = set 0
        first: bool = eq g, 0
        if first {
          seen = set 1
        }
        while {
          waits: bool = eq seen, 0
        } waits {
          now: i32 = load n[at] cache=relaxed
          seen = set now
        }
        next: i32 = add seen, 1
        store n[g], next cache=relaxed
      }
    """
    n = np.zeros(4, np.int32)
    run_kernel(body, head, {"n": n}, grid=4, in_waves=True, width=32)
    np.testing.assert_array_equal(n, [2, 3, 4, 5])
