"""Functions that texts may need: exact over all their inputs, and written only where used."""

from __future__ import annotations

import numpy as np
import pytest

from poot.codegen.hip.prelude import FUNCTIONS
from poot.codegen.kir.build import U32, KernelBuilder
from poot.codegen.kir.nodes import Kernel, Ty
from poot.codegen.kir.sim.values import NUMPY
from tests.support.hip.both import by_fibers, text_of

N = 1 << 16


def widen(dtype: str, elems: int) -> Kernel:
    """Every stored value of a narrow dtype as f32."""
    k = KernelBuilder(f"widen_{dtype}", 64)
    x, y = k.param("x", dtype, elems, "r"), k.param("y", "f32", elems, "w")
    at = k.group_id(0) * 64 + k.lane()
    k.store(y, at, k.cast(k.load(x, at), "f32"))
    return k.kernel()


def narrow(dtype: str, elems: int) -> Kernel:
    k = KernelBuilder(f"narrow_{dtype}", 64)
    x, y = k.param("x", "f32", elems, "r"), k.param("y", dtype, elems, "w")
    at = k.group_id(0) * 64 + k.lane()
    k.store(y, at, k.cast(k.load(x, at), dtype))
    return k.kernel()


@pytest.mark.parametrize("dtype", ["f16", "bf16", "f8e4m3"])
def test_every_stored_value_widens_exactly(dtype: str):
    bits = np.arange(256 if dtype == "f8e4m3" else N)
    x = bits.astype(np.uint8 if dtype == "f8e4m3" else np.uint16).view(NUMPY[dtype])
    got = by_fibers(widen(dtype, x.size), {"x": x}, (x.size // 64, 1, 1))["y"]
    np.testing.assert_array_equal(got, x.astype(np.float32))


@pytest.mark.parametrize("dtype", ["f16", "bf16", "f8e4m3"])
def test_floats_round_to_nearest_even_at_every_edge(dtype: str):
    """Each value of the dtype, the ties between neighbours, and what lies just beside those."""
    nbytes = NUMPY[dtype].itemsize
    bits = np.arange(1 << (8 * nbytes - 1), dtype=np.uint32)
    kind = np.uint8 if nbytes == 1 else np.uint16
    values = bits.astype(kind).view(NUMPY[dtype]).astype(np.float32)
    values = values[np.isfinite(values)]
    ties = (values[1:].astype(np.float64) + values[:-1]) / 2
    ties = ties.astype(np.float32)
    around = [
        values,
        ties,
        np.nextafter(ties, np.float32(np.inf)),
        np.nextafter(ties, np.float32(0)),
    ]
    special = np.array([np.inf, -np.inf, np.nan, 1e38, -1e38, 448, 464, 480, 65519.9, 65520, 1e-45])
    x = np.concatenate([*around, *(-a for a in around), special]).astype(np.float32)
    x = np.concatenate([x, np.ones(-x.size % 64, np.float32)])
    got = by_fibers(narrow(dtype, x.size), {"x": x}, (x.size // 64, 1, 1))["y"]
    with np.errstate(over="ignore"):
        want = x.astype(NUMPY[dtype])
    np.testing.assert_array_equal(got.astype(np.float32), want.astype(np.float32))
    signs = np.signbit(got.astype(np.float32)) == np.signbit(x)
    assert signs[~np.isnan(x)].all()


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
def test_bits_and_values_are_each_others(dtype: str):
    k = KernelBuilder(f"bits_{dtype}", 64)
    x, y = k.param("x", "u32", N // 2, "r"), k.param("y", "u32", N // 2, "w")
    at = k.group_id(0) * 64 + k.lane()
    k.store(y, at, k.bitcast(k.bitcast(k.load(x, at), Ty(dtype, 2)), U32))
    given = np.arange(N, dtype=np.uint16).view(np.uint32)
    got = by_fibers(k.kernel(), {"x": given}, (N // 128, 1, 1))["y"].view(np.uint16)
    values = np.arange(N, dtype=np.uint16).view(NUMPY[dtype]).astype(np.float32)
    number = ~np.isnan(values)
    np.testing.assert_array_equal(got[number], np.arange(N, dtype=np.uint16)[number])
    assert np.isnan(got.view(NUMPY[dtype]).astype(np.float32)[~number]).all()


def test_a_text_has_the_functions_that_it_calls_and_no_others():
    k = KernelBuilder("one", 1)
    y = k.param("y", "f32", 1, "rw")
    k.store(y, 0, k.op("nanmax", k.load(y, 0), k.lit(1.0)))
    text = text_of(k.kernel())
    assert [name for name in FUNCTIONS if f" {name}(" in text] == ["is_nan", "nan_max"]
    assert text.index("bool is_nan(") < text.index("float nan_max(")


def test_the_barrier_of_a_wave_gives_out_what_was_written_and_takes_in_what_others_wrote():
    rows = [row.strip() for row in FUNCTIONS["wave_barrier"].text.splitlines() if "__" in row]
    assert rows[1:] == [
        '__builtin_amdgcn_fence(__ATOMIC_RELEASE, "wavefront");',
        "__builtin_amdgcn_wave_barrier();",
        '__builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "wavefront");',
    ]


def test_every_call_names_a_function():
    for row in FUNCTIONS.values():
        assert set(row.calls) <= set(FUNCTIONS)
