"""What the verifier refuses of asynchronous copies, products and fragments."""

from __future__ import annotations

import pytest

from poot.codegen.kir.nodes import Blob
from poot.codegen.kir.ops import KIR_OPS
from poot.codegen.kir.target_rules import TARGET_RULES, box_elems
from poot.codegen.kir.verify import verify
from poot.errors import VerifyError
from tests.support.kernels import kernel_of

pytestmark = pytest.mark.quick

HEAD = """
  param x: bf16[4096] r align=16
  param f: f32[4096] rw align=16
  param w: bf16[4096] w align=16
  blob box: bytes[128] align=64 dtype=bf16 box=(64, 8) swizzle="128B"
  blob wide: bytes[128] align=64 dtype=bf16 box=(128, 8) swizzle="128B"
  blob bare: bytes[128] align=64
  shared s: bf16[8192] align=1024
  shared low: bf16[8192] align=16
  shared g: f32[1024] align=1024
  shared words: u32[1024] align=16
  shared bar: mbar[2] align=8
"""
START = """
  l: i32 = lane
  h: bf16 = load x[l]
  v: f32 = load f[l]
  a: frag[mma,a,16,16,bf16] = frag_fill h
  b: frag[mma,b,16,8,bf16] = frag_fill h
  c: frag[mma,acc,16,8,f32] = frag_fill v
  p: frag[wgmma,a,64,64,bf16] = frag_fill h
  z: frag[wgmma,acc,64,64,f32] = frag_fill v
  var o: frag[wgmma,acc,64,64,f32] = set z
  t: token[copy] = async_commit
  pair: f32x2 = vec v, v
"""


def check(body: str) -> None:
    verify(kernel_of(START + body, HEAD, threads=128, width=32))


GOOD = {
    "a copy": "cp_async s[l], x[l] nbytes=16 bypass=true",
    "codes": "u: u32 = bitcast v\nx4: f16x4 = unpack u dtype=i8",
    "a copy of some": "c1: bool = lt l, 3\ncp_async s[l], x[l], c1 nbytes=4",
    "mbarriers": "mbar_init bar[0] count=4\nmbar_arrive bar[0] expect=16\nmbar_wait bar[l], 1",
    "boxes": (
        "tma_load s[0], bar[0], 0, l blob=box\nt2: token[bulk] = tma_store s[0], 0, l blob=box"
    ),
    "a fragment in words": "d: frag[mma,a,16,16,bf16] = frag_load words[0], 24 trans=true",
    "a product": "d: frag[mma,acc,16,8,f32] = mma a, b, c",
    "products at once": (
        "o = wgmma p, s[0] k=64\no = wgmma s[0], s[0] k=128 stride_a=4096 stride_b=4096"
    ),
    "lines": (
        "r: f32x2 = frag_reduce c axis=1 kind=max\n"
        "d: frag[mma,acc,16,8,f32] = frag_apply c, r axis=1 kind=sub"
    ),
    "a whole line of rows": "r: f32x16 = frag_reduce z axis=0 kind=add",
    "elementwise": "d: frag[mma,acc,16,8,f32] = exp2 c\ne: frag[mma,acc,16,8,bool] = lt c, d",
    "conversions": (
        "d: frag[mma,acc,16,8,bf16] = frag_cast c\ne: frag[mma,b,16,8,bf16] = frag_move d\n"
        "q: frag[wgmma,a,64,64,bf16] = frag_cast z\n"
        "r: frag[wgmma,acc,64,16,f32] = frag_slice z at=48"
    ),
    "tiles": (
        "d: frag[mma,a,16,16,bf16] = frag_load s[0], 64 swizzle=row trans=true\n"
        "frag_store f[0], 8, c"
    ),
    "names": "barrier_sync 1 threads=64\nbarrier_arrive l threads=128",
    "elements": "d: f32 = extract c at=3\ne: frag[mma,acc,16,8,f32] = frag_pack v, v, v, v",
}


@pytest.mark.parametrize("body", GOOD.values(), ids=GOOD.keys())
def test_well_formed_target_ops_pass(body):
    check(body)


BAD = {
    "codes of 16 bits": ("u: u32 = bitcast v\nd: f16x4 = unpack u dtype=f16", "dtype i8 or f8"),
    "codes of no word": ("d: f16x4 = unpack v dtype=i8", "a word of u32"),
    "two of four codes": ("u: u32 = bitcast v\nd: f16x2 = unpack u dtype=i8", "four f16"),
    "bytes of a copy": ("cp_async s[l], x[l] nbytes=2", "nbytes of 4, 8 or 16"),
    "a copy from workgroup memory": ("cp_async s[l], s[l] nbytes=16", "a buffer that may be read"),
    "a copy from what is only written": (
        "cp_async s[l], w[l] nbytes=16",
        "a buffer that may be read",
    ),
    "a copy to a buffer": ("cp_async f[l], x[l] nbytes=16", "a workgroup array as dst"),
    "a copy between dtypes": ("cp_async s[l], f[l] nbytes=16", "one dtype on both sides"),
    "a copy's predicate": ("cp_async s[l], x[l], l nbytes=16", "two indices, and a bool"),
    "another kind of token": ("u: token[wgmma] = async_commit", "a token[copy]"),
    "a wait for a number": ("wait l pending=0", "a token"),
    "a wait for all but -1": ("wait t pending=-1", "pending of 0 or more"),
    "no mbarrier": ("mbar_arrive s[0]", "an array of mbarriers"),
    "a count of 0": ("mbar_init bar[0] count=0", "a count above 0"),
    "bytes of 0": ("mbar_arrive bar[0] expect=0", "bytes above 0"),
    "a parity of bool": ("mbar_wait bar[0], true", "a parity of i32"),
    "part of a subgroup": ("barrier_sync 1 threads=48", "whole subgroups"),
    "more than there are": ("barrier_sync 1 threads=256", "whole subgroups"),
    "a box that says nothing": ("tma_load s[0], bar[0], 0, 0 blob=bare", "declares dtype and box"),
    "a box wider than its swizzle": ("tma_load s[0], bar[0], 0, 0 blob=wide", "is 128 bytes"),
    "a coordinate too few": ("tma_load s[0], bar[0], 0 blob=box", "2 coordinates"),
    "a box of another dtype": ("tma_load g[0], bar[0], 0, 0 blob=box", "one dtype on both sides"),
    "a box over low alignment": ("tma_load low[0], bar[0], 0, 0 blob=box", "aligned to 1024 bytes"),
    "a store's token": ("u: token[copy] = tma_store s[0], 0, 0 blob=box", "a token[bulk]"),
    "a fragment that is none": ("d: frag[mma,acc,16,12,f32] = frag_fill v", "a multiple of 16x8"),
    "a fill of another dtype": ("d: frag[mma,acc,16,8,f32] = frag_fill h", "a scalar of its dtype"),
    "registers too few": ("d: frag[mma,acc,16,8,f32] = frag_pack v, v", "4 scalars of f32"),
    "coordinates of floats": ("d: frag[mma,acc,16,8,f32] = frag_coord axis=0", "an i32 frag"),
    "a load of another dtype": (
        "d: frag[mma,a,16,16,f16] = frag_load s[0], 64",
        "memory of the frag's dtype",
    ),
    "a swizzle of a buffer": (
        "d: frag[mma,a,16,16,bf16] = frag_load x[0], 64 swizzle=row",
        "workgroup memory and a swizzle",
    ),
    "a store to what is only read": ("frag_store x[0], 64, a", "access w of x, declared r"),
    "a cast to another shape": (
        "d: frag[mma,acc,16,16,bf16] = frag_cast c",
        "one family and shape",
    ),
    "a cast back": ("d: frag[wgmma,acc,64,64,f32] = frag_cast p", "one role, or acc to a"),
    "a move of f32": ("d: frag[mma,b,16,8,f32] = frag_move c", "a 16-bit dtype"),
    "a slice between blocks": (
        "d: frag[wgmma,acc,64,16,f32] = frag_slice z at=4",
        "a multiple of 8",
    ),
    "a slice past the end": (
        "d: frag[wgmma,acc,64,16,f32] = frag_slice z at=56",
        "a column inside",
    ),
    "a line of another length": ("d: f32 = frag_reduce c axis=1 kind=max", "a result of f32x2"),
    "a kind that is none": ("d: f32x2 = frag_reduce c axis=1 kind=mul", "kind add, max or min"),
    "a product of the wrong roles": (
        "d: frag[mma,acc,16,8,f32] = mma b, a, c",
        "roles a, b and acc",
    ),
    "a product of families": ("d: frag[wgmma,acc,64,64,f32] = mma a, b, z", "frags of one family"),
    "a k that does not divide": ("o = wgmma p, s[0] k=24", "k a multiple of 16"),
    "rows of another k": ("o = wgmma p, s[0] k=128 stride_b=4096", "a frag[wgmma,a,64,128,bf16]"),
    "no stride": ("o = wgmma s[0], s[0] k=128 stride_a=4096", "stride_b, the elements"),
    "a product of f32": ("o = wgmma g[0], g[0] k=16", "a 16-bit dtype"),
    "a product of low alignment": ("o = wgmma p, low[0] k=64", "aligned to 1024 bytes"),
    "an immutable accumulator": (
        "y: frag[wgmma,acc,64,64,f32] = wgmma p, s[0] k=64 zero=true",
        "a mutable register",
    ),
    "a store in words": ("frag_store words[0], 16, a", "memory of the frag's dtype"),
    "words in another order": (
        "d: frag[mma,a,16,16,bf16] = frag_load words[0], 64 swizzle=row",
        "memory of the frag's dtype",
    ),
    "words of another size": (
        "d: frag[mma,acc,16,8,f32] = frag_load words[0], 64",
        "memory of the frag's dtype",
    ),
    "opaque elements": (
        "d: frag[coop,acc,16,16,f32] = frag_fill v\ne: f32 = extract d at=0",
        "a frag with a lane map",
    ),
    "an element that no lane has": ("d: f32 = extract c at=4", "an element below 4"),
}


@pytest.mark.parametrize("body, said", BAD.values(), ids=BAD.keys())
def test_malformed_target_ops_are_refused(body, said):
    with pytest.raises(VerifyError) as found:
        check(body)
    assert said in str(found.value)


def test_an_accumulator_that_holds_nothing_starts_from_zero():
    body = START.replace("var o: frag[wgmma,acc,64,64,f32] = set z", "") + "PRODUCT k=64"
    product = "var n: frag[wgmma,acc,64,64,f32] = wgmma p, s[0]"
    verify(kernel_of(body.replace("PRODUCT", product) + " zero=true", HEAD, threads=128, width=32))
    with pytest.raises(VerifyError, match="n written before, or zero"):
        verify(kernel_of(body.replace("PRODUCT", product), HEAD, threads=128, width=32))


def test_every_other_op_has_a_rule():
    assert sorted(TARGET_RULES) == sorted(n for n, row in KIR_OPS.items() if not row.portable)


def test_a_box_has_the_product_of_its_edges():
    assert box_elems(Blob("b", box=(64, 8, 2))) == 1024
