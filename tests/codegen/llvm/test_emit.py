"""Whole kernels: which lanes run together, grids, and what is refused before anything is
written."""

from __future__ import annotations

import numpy as np
import pytest

from poot.codegen.code import code_key
from poot.codegen.kir.build import KernelBuilder
from poot.codegen.kir.nodes import Kernel
from poot.codegen.llvm.emit import emit_llvm, function_text, lanes_together, symbol
from poot.errors import BindingLimit, CapabilityError, DtypeLowering
from poot.limits import profile
from tests.support.cpu import WIDTHS, agrees, cpu

AVX2 = profile("cpu-avx2")


def copies(threads: int, meets: bool = False) -> Kernel:
    k = KernelBuilder("copies", threads)
    n = threads * 24
    x, y = k.param("x", "f32", n, "r"), k.param("y", "f32", n, "w")
    number = (k.group_id(2) * k.num_groups(1) + k.group_id(1)) * k.num_groups(0) + k.group_id(0)
    at = number * threads + k.lane()
    value = k.load(x, at)
    if meets:
        k.barrier()
    k.store(y, at, value + k.cast(k.lane(), "f32"))
    return k.kernel()


def test_lanes_that_never_meet_run_by_the_machines_width():
    assert lanes_together(copies(64), 8) == 8
    assert lanes_together(copies(64, meets=True), 8) == 64
    assert lanes_together(copies(5), 8) == 8
    assert lanes_together(copies(1), 8) == 1
    assert lanes_together(copies(33, meets=True), 16) == 64


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("meets", [False, True])
@pytest.mark.parametrize("threads", [1, 5, 16, 33, 64])
def test_every_group_of_a_grid_runs_once(threads, meets, width):
    x = np.arange(threads * 24, dtype=np.float32)
    agrees(copies(threads, meets), {"x": x, "y": np.zeros_like(x)}, (4, 3, 2), width=width)


def test_what_is_over_the_limits_is_refused_with_the_numbers():
    with pytest.raises(CapabilityError, match="kernel copies asks 512 lanes: cpu-avx2 has 256"):
        function_text(copies(512), AVX2)
    k = KernelBuilder("big", 1)
    k.shared("s", "f32", AVX2.workgroup_nbytes)
    with pytest.raises(CapabilityError, match="bytes of workgroup memory"):
        function_text(k.kernel(), AVX2)
    k = KernelBuilder("many", 1)
    for n in range(AVX2.storage_buffers + 1):
        k.param(f"p{n}", "f32", 1, "r")
    with pytest.raises(BindingLimit, match="kernel many binds"):
        function_text(k.kernel(), AVX2)
    with pytest.raises(CapabilityError, match="subgroups of 32: cpu-avx2 has 8"):
        function_text(KernelBuilder("sub", 32, subgroup=32).kernel(), AVX2)
    k = KernelBuilder("map", 1)
    k.blob("b")
    with pytest.raises(DtypeLowering, match="opaque launch bytes"):
        function_text(k.kernel(), AVX2)


def test_one_kernel_makes_one_text_under_the_name_of_its_key():
    text = function_text(copies(16), AVX2)
    assert text == function_text(copies(16), AVX2)
    assert f"define void @{symbol(code_key(copies(16), AVX2))}(" in text


def test_a_profile_is_compiled_without_its_device():
    if "x86-64" not in AVX2.arch:
        pytest.fail("the profile names another architecture")
    binary, text = emit_llvm(copies(16), AVX2)
    assert binary[32:36] == b"\x7fELF"
    assert "<8 x float>" in text


def test_the_width_is_part_of_the_key():
    own = cpu("own").limits
    half = cpu("half").limits
    assert code_key(copies(16), own) != code_key(copies(16), half)
