"""Asynchronous copies, phases and launches that overlap: what each architecture gets."""

from __future__ import annotations

import numpy as np
import pytest

from poot.codegen.kir.build import I32, KernelBuilder
from poot.codegen.kir.nodes import Kernel, Token
from poot.errors import CapabilityError, DtypeLowering
from tests.support.ptx_agree import AMPERE, agree, assembled, ptx_of


def ring(nbytes: int, bypass: bool, some: bool) -> Kernel:
    """y = x by copies behind the lane's back; with `some` only lanes below 20 read, others zero."""
    lanes = nbytes // 4
    k = KernelBuilder("ring", 32, 32)
    x, y = k.param("x", "f32", 32 * lanes, "r"), k.param("y", "f32", 32 * lanes, "w")
    s = k.shared("s", "f32", 32 * lanes)
    at = k.lane() * lanes
    k.do("cp_async", at, at, *([k.lane() < 20] if some else []), dst=s, mem=x, nbytes=nbytes,
         bypass=bypass)  # fmt: skip
    k.do("wait", k.op("async_commit", type=Token("copy")), pending=0)
    k.store(y, at, k.load(s, at, lanes))
    return k.kernel()


@pytest.mark.parametrize("nbytes", [4, 8, 16])
@pytest.mark.parametrize("some", [False, True])
def test_copies_of_every_size_land(nbytes, some):
    for bypass in (False, True):
        kernel = ring(nbytes, bypass, some)
        level = "cg" if bypass and nbytes == 16 else "ca"
        assert f"cp.async.{level}.shared.global" in ptx_of(kernel)
        agree(kernel, {"x": np.arange(32 * nbytes // 4, dtype=np.float32) + 1})


def phases(expect: int | None) -> Kernel:
    k = KernelBuilder("phases", 32, 32)
    bar, y = k.shared("bar", "mbar", 2, 8), k.param("y", "i32", 32, "w")
    with k.if_(k.lane().eq(0)):
        k.do("mbar_init", k.lit(1, I32), mem=bar, count=32)
    k.barrier()
    k.do("mbar_arrive", k.lit(1, I32), mem=bar, expect=expect)
    k.do("mbar_wait", k.lit(1, I32), k.lit(0, I32), mem=bar)
    k.store(y, k.lane(), k.lane())
    return k.kernel()


def test_phases_assemble_on_both_and_bytes_need_hopper():
    assert [r.spills for r in assembled(phases(None))] == [0, 0]
    assert "mbarrier.test_wait.parity.shared.b64" in ptx_of(phases(None), AMPERE)
    assert "mbarrier.try_wait.parity.shared::cta.b64" in ptx_of(phases(None))
    assert "expect_tx.shared::cta.b64" in ptx_of(phases(64))
    with pytest.raises(DtypeLowering, match="counts bytes needs sm_90 or newer: a100 is sm_80"):
        ptx_of(phases(64), AMPERE)


def tensors(store: bool) -> Kernel:
    k = KernelBuilder("tensors", 32, 32)
    k.blob("map", "bf16", (64, 8), "128B")
    s, bar = k.shared("s", "bf16", 1024, 1024), k.shared("bar", "mbar", 1, 8)
    zero = k.lit(0, I32)
    if store:
        token = k.op("tma_store", zero, zero, k.group_id(0), blob="map", mem=s, type=Token("bulk"))
        k.do("wait", token, pending=0)
    else:
        k.do("tma_load", k.lit(512, I32), zero, zero, k.group_id(0), blob="map", dst=s, mem=bar)
    return k.kernel()


def test_tensor_maps_are_parameters_of_128_bytes():
    text = ptx_of(tensors(False))
    assert ".param .align 64 .b8 param_map[128]" in text
    assert "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier" in text
    assert "cp.async.bulk.tensor.2d.global.shared::cta.bulk_group" in ptx_of(tensors(True))
    for store in (False, True):
        assert assembled(tensors(store), ("sm_90a",))[0].spills == 0
        with pytest.raises(DtypeLowering, match="a tensor map needs sm_90 or newer"):
            ptx_of(tensors(store), AMPERE)


def test_overlapping_launches_wait_only_where_the_card_overlaps_them():
    k = KernelBuilder("overlap", 32)
    y = k.param("y", "i32", 32, "w")
    k.do("grid_trigger")
    k.do("grid_wait")
    k.store(y, k.lane(), k.lane())
    text = ptx_of(k.kernel())
    assert text.index("griddepcontrol.launch_dependents") < text.index("griddepcontrol.wait")
    assert "griddepcontrol" not in ptx_of(k.kernel(), AMPERE)
    agree(k.kernel(), {})


def test_a_fence_for_the_copy_engine_needs_hopper():
    k = KernelBuilder("fences", 32)
    for scope in ("group", "device"):
        k.do("fence", scope=scope)
    assert "fence.acq_rel.gpu" in ptx_of(k.kernel(), AMPERE)
    k.do("fence", scope="async")
    assert "fence.proxy.async.shared::cta" in ptx_of(k.kernel())
    with pytest.raises(CapabilityError, match="needs sm_90 or newer"):
        ptx_of(k.kernel(), AMPERE)


def test_an_early_load_stands_before_the_wait_and_is_not_marked_as_constant():
    k = KernelBuilder("early", 32)
    x = k.param("x", "f32", 128, "r")
    y = k.param("y", "f32", 128, "w")
    value = k.load(x, k.lane() * 4, 4, "early")
    k.do("grid_wait")
    k.store(y, k.lane() * 4, value)
    text = ptx_of(k.kernel())
    assert "ld.global.L1::no_allocate.v4.b32" in text
    assert text.index("ld.global") < text.index("griddepcontrol.wait")
