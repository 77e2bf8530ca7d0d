"""The kernel's text: one kernel, one text, and nothing of it lost."""

from __future__ import annotations

import math

import pytest

from poot.codegen.kir.build import I32, KernelBuilder
from poot.codegen.kir.nodes import (
    Blob,
    If,
    Imm,
    Ins,
    Kernel,
    Lit,
    Param,
    Reg,
    Role,
    Roles,
    Shared,
    Ty,
)
from poot.codegen.kir.text import parse, show, show_stmt

pytestmark = pytest.mark.quick

EVERYTHING = """\
kernel every threads=64 subgroup=32 {
  param x: f32[1024] r align=16
  param y: bf16[8] rw align=4
  imm n: i32
  blob map: bytes[128] align=64 dtype=bf16 box=(64, 64, 1, 1) swizzle="128B"
  blob plain: bytes[32] align=8
  shared s: f32[64] align=16
  shared bars: mbar[2] align=8
  t1: i32 = imm name=n
  t2: i32 = group_id axis=0
  t3: bool = lt t2, t1
  var m: f32 = set -inf
  if t3 {
    t4: f32x4 = load x[t2] cache=stream
    t5: f32 = extract t4 at=2
    m = set t5
  } else {
    m = set nan
  }
  if true {
  }
  for i: i32 = 0, 10, 2 unroll=4 {
    store s[i], 0.5
  }
  while {
    t6: bool = lt m, 1e-30
  } t6 {
    m = set 1.0
    barrier scope=(named, 1, 64)
  }
  t7: u32 = and 3:u32, 4294967295:u32
  t8: f16x2 = vec 1.0:f16, -0.0:f16
  var acc: frag[wgmma,acc,64,8,f32] = undef
  roles {
    producer first=0 count=1 regs=40 {
      tma_load s[0], bars[0], 0, 0, 0, 0 blob=map
    }
    consumer first=1 count=1 regs=232 {
      t9: token[copy] = async_commit
      wait t9 pending=0
    }
  }
}
"""


def test_a_text_with_every_form_is_read_and_written_byte_for_byte():
    assert show(parse(EVERYTHING)) == EVERYTHING


def test_the_parsed_kernel_is_the_kernel():
    kernel = parse(EVERYTHING)
    assert parse(show(kernel)) == kernel
    assert kernel.params == (Param("x", "f32", 1024, "r"), Param("y", "bf16", 8, "rw", 4))
    assert kernel.imms == (Imm("n", "i32"),)
    assert kernel.blobs[0] == Blob("map", 128, 64, "bf16", (64, 64, 1, 1), "128B")
    assert kernel.shared == (Shared("s", "f32", 64), Shared("bars", "mbar", 2, 8))
    assert kernel.subgroup == 32
    roles = kernel.body[-1]
    assert isinstance(roles, Roles)
    assert [(r.name, r.first, r.count, r.registers) for r in roles.roles] == [
        ("producer", 0, 1, 40),
        ("consumer", 1, 1, 232),
    ]


def test_a_built_kernel_comes_back_whole():
    k = KernelBuilder("built", 32)
    x = k.param("x", "f32", 64, "rw")
    k.shared("s", "f32", 32)
    total = k.var(0.0)
    with k.for_(0, 8, unroll=0) as i:
        k.set(total, total + k.load(x, i))
    with k.if_(total < math.inf):
        k.store(x, k.lane(), total, cache="stream")
    with k.else_():
        k.barrier()
    with k.block_() as head:
        again = total > 3.0
    with k.while_(head, again):
        k.set(total, total * 0.5)
    kernel = k.kernel()
    assert parse(show(kernel)) == kernel


@pytest.mark.parametrize(
    "value, type, text",
    [
        (1, "i32", "1"),
        (1, "u32", "1:u32"),
        (-1, "i64", "-1:i64"),
        (0.1, "f32", "0.1"),
        (1e-30, "f32", "1e-30"),
        (-0.0, "f32", "-0.0"),
        (math.inf, "f32", "inf"),
        (math.nan, "bf16", "nan:bf16"),
        (True, "bool", "true"),
    ],
)
def test_a_number_says_its_type_where_its_look_does_not(value, type, text):
    lit = Lit(value, Ty(type))
    ins = Ins("set", (Reg("r", Ty(type)),), (lit,))
    assert show_stmt(ins) == f"r: {type} = set {text}"
    kernel = Kernel("k", (), (), (), (), 1, None, (ins,))
    (back,) = parse(show(kernel)).body
    assert isinstance(back, Ins)
    assert repr(back.args[0]) == repr(lit)


def test_every_nan_is_one_number():
    assert Lit(float("nan"), Ty("f32")) == Lit(math.nan, Ty("f32"))


def test_comments_and_blank_lines_say_nothing():
    plain = "kernel a threads=1 {\n  t: i32 = lane\n}\n"
    noisy = "# a kernel\n\nkernel a threads=1 {  # one lane\n\n\n  t: i32 = lane # who\n}\n\n"
    assert parse(noisy) == parse(plain)


def test_a_mutable_register_is_declared_where_it_is_first_written():
    m = Reg("m", I32, mutable=True)
    body = (
        If(Lit(True, Ty("bool")), (Ins("set", (m,), (Lit(1, I32),)),)),
        Ins("set", (m,), (Lit(2, I32),)),
    )
    text = show(Kernel("k", (), (), (), (), 1, None, body))
    assert "    var m: i32 = set 1\n  }\n  m = set 2\n" in text


def test_one_role_can_hold_nothing():
    kernel = Kernel("k", (), (), (), (), 32, 32, (Roles((Role("all", 0, 1, 0, ()),)),))
    assert parse(show(kernel)) == kernel
