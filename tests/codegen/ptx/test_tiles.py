"""Fragments to and from memory: every form, as the kernel IR's simulator has it."""

from __future__ import annotations

import itertools

import ml_dtypes
import numpy as np
import pytest

from poot.codegen.kir.build import I32, KernelBuilder
from poot.codegen.kir.nodes import Frag, Kernel
from poot.errors import DtypeLowering
from tests.support.ptx_agree import agree, ptx_of

NUMPY = {"bf16": ml_dtypes.bfloat16, "f16": np.float16, "f32": np.float32}
FRAGS = {
    "a": Frag("mma", "a", 32, 32, "bf16"),
    "b": Frag("mma", "b", 32, 16, "bf16"),
    "acc": Frag("mma", "acc", 16, 24, "f16"),
    "wide": Frag("mma", "acc", 32, 16, "f32"),
}


def numbers(dtype: str, elems: int) -> np.ndarray:
    return (np.arange(elems) % 509 - 254).astype(np.float32).astype(NUMPY[dtype])


def through_shared(
    frag: Frag, pitch: int | None, first: int, trans: bool, swizzle: str | None
) -> Kernel:
    """x -> workgroup memory as it lies -> frag -> workgroup memory -> y, both moved by lanes."""
    size = 64 * 128
    k = KernelBuilder("through", 32, 32)
    x, y = k.param("x", frag.dtype, size, "r"), k.param("y", frag.dtype, size, "w")
    s, t = k.shared("s", frag.dtype, size, 1024), k.shared("t", frag.dtype, size, 1024)
    step = k.lit(pitch, I32) if pitch is not None else k.imm("pitch")
    lane = k.lane()
    with k.for_(lane, size, 32) as at:
        k.store(s, at, k.load(x, at))
        k.store(t, at, k.lit(0.0, k.load(x, at).ty))
    k.barrier()
    start = k.group_id(0) * 64 + first
    attrs = {"trans": trans or None, "swizzle": swizzle}
    held = k.op("frag_load", start, step, type=frag, mem=s, **attrs)
    k.do("frag_store", start, step, held, mem=t, **attrs)
    k.barrier()
    with k.for_(lane, size, 32) as at:
        k.store(y, at, k.load(t, at))
    return k.kernel()


@pytest.mark.parametrize("role", FRAGS)
@pytest.mark.parametrize("trans", [False, True])
@pytest.mark.parametrize("swizzle", [None, "row", "128B"])
def test_a_tile_comes_from_workgroup_memory_and_goes_back(role, trans, swizzle):
    frag = FRAGS[role]
    for pitch, first in itertools.product((64, 128 if swizzle != "128B" else 64), (0, 8)):
        x = numbers(frag.dtype, 64 * 128)
        out = agree(through_shared(frag, pitch, first, trans, swizzle), {"x": x})["y"]
        assert np.count_nonzero(out.astype(np.float32)) >= 0.9 * frag.m * frag.n


@pytest.mark.parametrize("role", ["a", "b", "wide"])
def test_a_pitch_that_only_the_launch_knows(role):
    frag = FRAGS[role]
    kernel = through_shared(frag, None, 16, False, "row")
    agree(kernel, {"x": numbers(frag.dtype, 64 * 128)}, imms=(64,))


def test_a_tile_that_starts_off_a_line_goes_element_by_element():
    frag = FRAGS["a"]
    kernel = through_shared(frag, 64, 3, False, None)
    assert "ldmatrix" not in ptx_of(kernel)
    agree(kernel, {"x": numbers(frag.dtype, 64 * 128)})


@pytest.mark.parametrize("role", FRAGS)
@pytest.mark.parametrize("trans", [False, True])
def test_a_tile_comes_from_a_buffer_and_goes_back(role, trans):
    frag = FRAGS[role]
    k = KernelBuilder("buffers", 32, 32)
    x, y = k.param("x", frag.dtype, 4096, "r"), k.param("y", frag.dtype, 4096, "w")
    attrs = {"trans": trans or None}
    held = k.op("frag_load", k.lit(5, I32), k.lit(50, I32), type=frag, mem=x, **attrs)
    k.do("frag_store", k.lit(2, I32), k.lit(64, I32), held, mem=y, **attrs)
    agree(k.kernel(), {"x": numbers(frag.dtype, 4096)})


def test_neighbours_in_a_buffer_go_two_at_a_time():
    k = KernelBuilder("pairs", 32, 32)
    y = k.param("y", "f32", 4096, "w")
    held = k.op("frag_fill", k.lit(2.0), type=FRAGS["wide"])
    k.do("frag_store", k.group_id(0) * 64, k.lit(64, I32), held, mem=y)
    assert "st.global.v2.b32" in ptx_of(k.kernel())


def test_lines_of_sixteen_bytes_go_by_the_matrix_instructions():
    text = ptx_of(through_shared(FRAGS["a"], 64, 0, False, "128B"))
    assert text.count("ldmatrix.sync.aligned.m8n8.x4.shared.b16") == 4
    assert text.count("stmatrix.sync.aligned.m8n8.x4.shared.b16") == 4


def test_another_targets_fragments_are_refused():
    k = KernelBuilder("amd", 32, 32)
    y = k.param("y", "f32", 4096, "w")
    held = k.op("frag_fill", k.lit(1.0), type=Frag("mfma", "acc", 16, 16, "f32"))
    k.do("frag_store", k.lit(0, I32), k.lit(16, I32), held, mem=y)
    with pytest.raises(DtypeLowering, match="ptx has no mfma fragments"):
        ptx_of(k.kernel())
