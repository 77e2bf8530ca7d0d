"""Nothing touches what open asynchronous work uses."""

from __future__ import annotations

import pytest

from poot.codegen.kir.live import check_live
from poot.codegen.kir.text import parse
from poot.errors import VerifyError

pytestmark = pytest.mark.quick

HEAD = """\
kernel k threads=128 subgroup=32 {
  param x: f32[1024] r align=16
  blob m: bytes[128] align=64 dtype=f32 box=(16) swizzle=none
  shared s: f32[1024] align=1024
  shared a: bf16[8192] align=1024
  l: i32 = lane
  var o: frag[wgmma,acc,64,64,f32] = undef
  var q: frag[wgmma,acc,64,64,f32] = undef
  p: frag[wgmma,a,64,64,bf16] = frag_fill 0.0:bf16
"""


def check(text: str) -> None:
    check_live(parse(HEAD + text + "\n}\n"))


COPY = "cp_async s[l], x[l] nbytes=16\nt: token[copy] = async_commit\n"
PRODUCT = "o = wgmma p, a[0] k=64 zero=true\nt: token[wgmma] = wgmma_commit\n"

GOOD = {
    "a copy that was waited for": COPY + "wait t pending=0\nv: f32 = load s[l]",
    "a store elsewhere": COPY + "e: i32 = add l, 4\nstore s[e], 0.0",
    "other elements": "cp_async s[0], x[l] nbytes=16\nstore s[4], 0.0",
    "a product that was waited for": PRODUCT + "wait t pending=0\nstore s[l], 0.0\n"
    "r: f32 = extract o at=0",
    "a chain of products": PRODUCT + "o = wgmma p, a[4096] k=64",
    "the one before the last": (
        PRODUCT + "q = wgmma p, a[0] k=64 zero=true\nu: token[wgmma] = wgmma_commit\n"
        "wait t pending=1\nr: f32 = extract o at=0\nwait u pending=0\ne: f32 = extract q at=0"
    ),
    "operands are read": PRODUCT + "r: bf16 = extract p at=0\ne: bf16 = load a[0]",
    "a ring": (
        "for i: i32 = 0, 8, 1 {\nj: i32 = mul i, 4\ncp_async s[j], x[j] nbytes=16\n"
        "t: token[copy] = async_commit\nwait t pending=1\nk: i32 = sub j, 4\nv: f32 = load s[k]\n}"
    ),
}


@pytest.mark.parametrize("text", GOOD.values(), ids=GOOD.keys())
def test_work_that_ended_may_be_used(text):
    check(text)


BAD = {
    "a load before the wait": (COPY + "v: f32 = load s[l]", "s[l] while an open copy writes it"),
    "a load before the commit": ("cp_async s[l], x[l] nbytes=16\nv: f32 = load s[l]", "copy"),
    "a store before the wait": (COPY + "store s[l], 0.0", "copy writes it"),
    "inside the copied range": ("cp_async s[0], x[l] nbytes=16\nstore s[3], 0.0", "s[0]"),
    "the wait leaves it open": (COPY + "wait t pending=1\nv: f32 = load s[l]", "copy"),
    "a wait for another kind": (
        COPY + "u: token[wgmma] = wgmma_commit\nwait u pending=0\nv: f32 = load s[l]",
        "copy",
    ),
    "one path waits": (
        COPY + "c: bool = lt l, 3\nif c {\nwait t pending=0\n}\nv: f32 = load s[l]",
        "copy",
    ),
    "the trip before left it open": (
        "c: bool = lt l, 3\nvar f: i32 = set 0\nfor i: i32 = 0, 8, 1 {\nstore s[0], 0.0\n"
        "cp_async s[0], x[l] nbytes=4\nt: token[copy] = async_commit\n}",
        "store s[0], 0.0",
    ),
    "an accumulator read": (PRODUCT + "r: f32 = extract o at=0", "o while an open wgmma writes it"),
    "an accumulator set": (PRODUCT + "o = set q", "o while an open wgmma writes it"),
    "an operand fragment written": (
        "for i: i32 = 0, 2, 1 {\nr: frag[wgmma,a,64,64,bf16] = frag_fill 0.0:bf16\n"
        "o = wgmma r, a[0] k=64 zero=true\nt: token[wgmma] = wgmma_commit\n}",
        "r while an open wgmma reads it",
    ),
    "an operand tile written": (PRODUCT + "store a[0], 0.0:bf16", "a[0] while an open wgmma reads"),
    "a stored tile written": (
        "b: token[bulk] = tma_store s[l], 0 blob=m\nstore s[l], 0.0",
        "s[l] while an open bulk reads it",
    ),
    "an accumulator as an operand": (
        PRODUCT + "z: frag[wgmma,acc,64,64,f32] = add o, q",
        "o while",
    ),
}


@pytest.mark.parametrize("text, said", BAD.values(), ids=BAD.keys())
def test_open_work_is_left_alone(text, said):
    with pytest.raises(VerifyError) as found:
        check(text)
    assert said in str(found.value)
