"""Whole kernels: limits, names in refusals, equal bytes, private arrays."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace

import pytest

from poot.codegen.kir.build import KernelBuilder
from poot.codegen.kir.nodes import Blob, Ins, Kernel
from poot.codegen.kir.parse import parse
from poot.codegen.spirv.emit import emit, emit_spirv
from poot.codegen.spirv.text import disassemble
from poot.errors import BindingLimit, CapabilityError, DtypeLowering
from poot.limits import profile
from tests.support.gpu import validate


def copy_kernel(params: int = 1, threads: int = 64, shared: int = 0) -> Kernel:
    k = KernelBuilder("copy", threads)
    names = [k.param(f"p{n}", "f32", 64, "rw") for n in range(params)]
    if shared:
        k.store(k.shared("s", "f32", shared), k.lane(), k.lit(0.0))
    for name in names:
        k.store(name, k.lane(), k.load(name, k.lane()) + 1.0)
    return k.kernel()


@pytest.mark.parametrize("cap", [16384, 32768, 49152, 65536])
def test_workgroup_memory_over_the_cap_is_refused_and_at_it_is_taken(cap):
    limits = replace(profile("lavapipe"), workgroup_nbytes=cap)
    validate(emit(copy_kernel(shared=cap // 4), limits))
    with pytest.raises(
        CapabilityError, match=f"copy asks {cap + 4} bytes of workgroup memory: .*{cap}"
    ):
        emit(copy_kernel(shared=cap // 4 + 1), limits)


@pytest.mark.parametrize("cap", [128, 256])
def test_more_lanes_than_a_group_holds_are_refused(cap):
    limits = replace(profile("webgpu-baseline"), threads=cap)
    validate(emit(copy_kernel(threads=cap), limits))
    with pytest.raises(CapabilityError, match=f"copy asks {cap + 1} lanes: .*{cap}"):
        emit(copy_kernel(threads=cap + 1), limits)


def test_more_buffers_than_a_stage_has_are_refused():
    limits = profile("webgpu-baseline")
    validate(emit(copy_kernel(8), limits))
    with pytest.raises(BindingLimit, match="copy binds 9 buffers: webgpu-baseline has 8"):
        emit(copy_kernel(9), limits)


def test_opaque_launch_bytes_are_refused():
    kernel = replace(copy_kernel(), blobs=(Blob("map"),))
    with pytest.raises(DtypeLowering, match=r"kernel copy: .*opaque launch bytes"):
        emit(kernel, profile("lavapipe"))


def test_a_refusal_names_the_kernel_and_the_op():
    kernel = Kernel("k", (), (), (), (), 1, None, (Ins("barrier", (), (), (("scope", "role"),)),))
    with pytest.raises(DtypeLowering, match=r"kernel k: .*barriers are of a group or a subgroup"):
        emit(kernel, profile("lavapipe"))


def test_the_text_is_the_kernels_own():
    kernel = copy_kernel()
    binary, text = emit_spirv(kernel, profile("lavapipe"))
    assert (binary, parse(text)) == (emit(kernel, profile("lavapipe")), kernel)


def test_no_private_array_is_ever_declared():
    """An array that a run-time value indexes crashes some drivers (case 119): only buffers and
    workgroup memory have arrays, and every variable of a function is a scalar."""
    k = KernelBuilder("vectors", 8)
    x, y = k.param("x", "f32", 64, "r"), k.param("y", "f32", 64, "w")
    v = k.var(k.load(x, k.lane() * 8, 8))
    with k.for_(0, 3):
        k.set(v, v + v)
    k.store(y, k.lane() * 8, v)
    text = disassemble(emit(k.kernel(), profile("lavapipe")))
    assert "OpTypeArray" not in text
    assert text.count("OpTypeRuntimeArray") == 2


PROGRAM = """
import sys
from tests.codegen.spirv.test_emit import copy_kernel
from poot.codegen.spirv.emit import emit
from poot.limits import profile
sys.stdout.buffer.write(emit(copy_kernel(3, shared=64), profile("lavapipe")))
"""


def test_the_same_kernel_gives_the_same_bytes_whatever_the_hash_seed():
    seen = set()
    for seed in ("0", "1"):
        env = os.environ | {"PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(sys.path)}
        done = subprocess.run([sys.executable, "-c", PROGRAM], env=env, capture_output=True)
        assert done.returncode == 0, done.stderr.decode()
        seen.add(done.stdout)
    assert seen == {emit(copy_kernel(3, shared=64), profile("lavapipe"))}


def test_an_empty_kernel_is_a_module():
    validate(emit(KernelBuilder("nothing", 1).kernel(), profile("webgpu-baseline")))
