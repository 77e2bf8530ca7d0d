"""A whole kernel's text, and what is refused before one is written."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from poot.codegen.emitters import EMITTERS
from poot.codegen.hip.emit import (
    OPTIONS,
    argument_nbytes,
    emit_hip,
)
from poot.codegen.kir.build import I32, KernelBuilder
from poot.codegen.kir.nodes import Kernel
from poot.codegen.kir.text import parse
from poot.errors import BindingLimit, CapabilityError, DtypeLowering
from tests.support.hip.both import MI300X, agree, text_of

DOT = """kernel dot threads=64 subgroup=64 {
  param x: f32[128] r align=16
  param y: f32[128] r align=16
  param out: f32[1] rw align=16
  imm scale: f32
  shared parts: f32[64] align=16
  t1: i32 = lane
  t2: i32 = mul t1, 2
  t3: f32x2 = load x[t2] cache=const
  t4: f32x2 = load y[t2]
  t5: f32x2 = mul t3, t4
  var sum: f32 = set 0.0
  for i: i32 = 0, 1, 1 {
    t6: f32 = extract t5 at=0
    t7: f32 = extract t5 at=1
    t8: f32 = add t6, t7
    t9: f32 = add sum, t8
    sum = set t9
  }
  t10: f32 = subgroup_reduce sum kind=add width=64
  store parts[t1], t10
  barrier scope=group
  t11: bool = eq t1, 0
  if t11 {
    t12: f32 = load parts[0]
    t13: f32 = imm name=scale
    t14: f32 = mul t12, t13
    store out[0], t14
  }
}
"""
TEXT = """// dot: 64 lanes, waves of 64, 256 bytes shared
#ifndef __HIPCC_RTC__
#include <hip/hip_runtime.h>
#endif

struct alignas(8) f32x2 { float s[2]; };

static __device__ __forceinline__ f32x2 load_f32x2(const float* p) {
  return *(const f32x2*)p;
}

static __device__ __forceinline__ float reduce_add_f32_64(float v) {
  for (int step = 32; step > 0; step /= 2) {
    const float other = __shfl_xor(v, step);
    v = v + other;
  }
  return v;
}

extern "C" __global__ __launch_bounds__(64)
void poot_dot(const float* __restrict__ x, const float* y, float* out, float scale) {
  __shared__ unsigned char shared[256] __attribute__((aligned(16)));
  float (&parts)[64] = *(float (*)[64])shared;
  const int t1 = (int)threadIdx.x;
  const int t2 = t1 * 2;
  const f32x2 t3 = load_f32x2(x + t2);
  const f32x2 t4 = load_f32x2(y + t2);
  const f32x2 t5 = f32x2{t3.s[0] * t4.s[0], t3.s[1] * t4.s[1]};
  float sum = 0.0f;
  for (int i = 0; i < 1; ++i) {
    const float t6 = t5.s[0];
    const float t7 = t5.s[1];
    const float t8 = t6 + t7;
    const float t9 = sum + t8;
    sum = t9;
  }
  const float t10 = reduce_add_f32_64(sum);
  parts[t1] = t10;
  __syncthreads();
  const bool t11 = t1 == 0;
  if (t11) {
    const float t12 = parts[0];
    const float t13 = scale;
    const float t14 = t12 * t13;
    out[0] = t14;
  }
}
"""


def test_a_kernel_is_one_readable_text():
    binary, text = emit_hip(parse(DOT), MI300X)
    assert text == TEXT
    assert binary == TEXT.encode()


def test_the_text_means_what_the_simulator_does():
    rng = np.random.default_rng(0)
    given = {n: rng.standard_normal(128).astype(np.float32) for n in ("x", "y")}
    agree(parse(DOT), given, imms=(0.5,), within=1e-5)


def test_the_row_of_the_table_is_this_emitter():
    assert EMITTERS["hip"] is emit_hip


def test_i32_wraps_and_nothing_is_contracted():
    assert {"-fwrapv", "-ffp-contract=off"} <= set(OPTIONS)


def empty(name: str = "k", **changes: object) -> Kernel:
    return replace(KernelBuilder(name, 64).kernel(), **changes)


@pytest.mark.parametrize(
    "changes, error, words",
    [
        ({"threads": 2048}, CapabilityError, "kernel k asks 2048 lanes: mi300x has 1024"),
        ({"subgroup": 32}, CapabilityError, "written for subgroups of 32: mi300x has 64"),
    ],
)
def test_numbers_over_the_cards_are_refused(changes: dict[str, object], error: type, words: str):
    with pytest.raises(error, match=words):
        emit_hip(empty(**changes), MI300X)


def test_workgroup_memory_buffers_and_blobs_over_the_cards_are_refused():
    k = KernelBuilder("k", 64)
    k.shared("s", "f32", 1 << 15)
    with pytest.raises(CapabilityError, match="asks 131072 bytes of workgroup memory: mi300x has"):
        emit_hip(k.kernel(), MI300X)
    k = KernelBuilder("k", 64)
    for n in range(65):
        k.param(f"p{n}", "f32", 1, "r")
    with pytest.raises(BindingLimit, match="kernel k binds 65 buffers: mi300x has 64"):
        emit_hip(k.kernel(), MI300X)
    k = KernelBuilder("k", 64)
    k.blob("map")
    with pytest.raises(DtypeLowering, match="kernel k: hip has no opaque launch bytes"):
        emit_hip(k.kernel(), MI300X)


def test_arguments_are_counted_as_the_launch_packs_them():
    assert argument_nbytes(parse(DOT)) == 3 * 8 + 4


def test_the_same_kernel_is_the_same_text():
    assert text_of(parse(DOT)) == text_of(parse(DOT))


def test_a_kernel_without_anything_is_a_text_too():
    k = KernelBuilder("nothing", 1)
    k.op("undef", type=I32)
    kernel = replace(k.kernel(), body=())
    assert emit_hip(kernel, MI300X)[1].endswith("void poot_nothing() {\n}\n")
