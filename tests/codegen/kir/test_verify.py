"""What the verifier refuses, case by case, and that it lets well-formed kernels through."""

from __future__ import annotations

from dataclasses import replace

import pytest

from poot.codegen.kir.nodes import Ins, Kernel, Lit, Reg, Ty
from poot.codegen.kir.ops import KIR_OPS
from poot.codegen.kir.rules import RULES
from poot.codegen.kir.target_rules import TARGET_RULES
from poot.codegen.kir.text import parse
from poot.codegen.kir.verify import check_arrays, verify
from poot.errors import VerifyError
from poot.limits import profile

pytestmark = pytest.mark.quick

HEAD = """\
kernel k threads=64 subgroup=32 {
  param x: f32[64] r align=16
  param y: f32[64] rw align=16
  param out: f32[64] w align=16
  param words: u32[64] rw align=16
  imm n: i32
  shared s: f32[64] align=16
  shared bars: mbar[2] align=8
  l: i32 = lane
  c: bool = lt l, 3
  v: f32 = load x[l]
"""


def kernel(text: str) -> Kernel:
    return parse(HEAD + text + "\n}\n")


GOOD = {
    "every op of the head": "",
    "arithmetic": "a: f32 = fma v, v, 1.0\nb: i32 = div l, 2\nd: i64 = cast l",
    "a vector": "a: f32x4 = load x[0]\nb: f32 = extract a at=3\nd: f32x2 = vec b, b",
    "a loop": "var m: f32 = set 0.0\nfor i: i32 = 0, 8, 1 {\nm = set v\n}\nstore out[l], m",
    "both branches write": "if c {\nvar m: f32 = set 0.0\n} else {\nm = set 1.0\n}\nstore y[l], m",
    "a head's register after its loop": (
        "var m: f32 = set 0.0\nwhile {\nd: bool = lt m, 1.0\n} d {\nm = set 1.0\n}\n"
        "e: f32 = select d, 1.0, m"
    ),
    "undef counts as written": "var m: f32 = undef\nfor i: i32 = 0, 1, 1 {\nm = set v\n}\n"
    "store out[l], m",
    "an immediate": "a: i32 = imm name=n",
    "atomics": "a: u32 = atomic words[l], 1:u32 kind=add",
    "a bool of words": "a: bool = eq c, true",
    "bits": "a: u32 = bitcast v\nb: u32 = shl a, 3:u32\nd: bool = isnan v",
}


@pytest.mark.parametrize("text", GOOD.values(), ids=GOOD.keys())
def test_a_well_formed_kernel_passes(text):
    verify(kernel(text))


BAD = {
    "another dtype": ("a: f32 = add v, 1", "operands of the result's type"),
    "no float op on integers": ("a: i32 = exp2 l", "a result of f32, f16, bf16"),
    "a comparison gives a bool": ("a: i32 = lt l, 3", "a bool result"),
    "select needs a bool": ("a: f32 = select l, v, v", "a bool to choose by"),
    "a cast to bool": ("a: bool = cast l", "compare with 0"),
    "bits in and out": ("a: i64 = bitcast v", "as many bits"),
    "a short vector": ("a: f32x4 = vec v, v", "as many elements"),
    "an element outside": ("a: f32x2 = vec v, v\nb: f32 = extract a at=2", "an element below 2"),
    "too few operands": ("a: f32 = fma v, v", "3 operands"),
    "a result too few": ("shuffle v, l", "1 results"),
    "unwritten memory": ("a: f32 = load z[l]", "a declared buffer or workgroup array"),
    "a buffer that is only read": ("store x[l], v", "access w of x, declared r"),
    "a buffer that is only written": ("a: f32 = load out[l]", "access r of out, declared w"),
    "a value of another dtype": ("store y[l], l", "f32, as y is declared"),
    "an atomic on floats": ("a: f32 = atomic y[l], v kind=add", "an i32 or u32 operand"),
    "a float index": ("a: f32 = load x[v]", "an index of i32"),
    "mbarriers are no memory": ("a: f32 = load bars[l]", "a declared buffer"),
    "an unknown cache": ("a: f32 = load x[l] cache=soon", "a cache of stream"),
    "an unknown scope": ("barrier scope=all", "scope group, subgroup, role"),
    "an unknown immediate": ("a: i32 = imm name=m", "a declared immediate"),
    "an axis": ("a: i32 = group_id axis=3", "axis 0, 1 or 2"),
    "a static index": ("a: f32 = load x[64]", "an index inside x, of 64 elements"),
    "a negative index": ("a: f32 = load x[-1]", "an index inside x"),
    "a static vector": ("a: f32x4 = load x[61]", "an index inside x"),
    "a static hint": ("prefetch x[64]", "an index inside x, of 64 elements"),
    "a hint of what is only written": ("prefetch out[l]", "a declared buffer that is read"),
    "a hint at a float": ("prefetch x[v]", "an index of i32"),
    "a crooked vector": ("a: f32x4 = load x[2]", "a multiple of 4"),
    "a static shift": ("a: i32 = shl l, 32", "a shift of 0 .. 31"),
    "a static division": ("a: i32 = rem l, 0", "a divisor other than 0"),
    "written twice": ("a: i32 = set 1\na: i32 = set 2", "a written once"),
    "two types": ("a: i32 = set 1\nif c {\na: f32 = set v\n}", "one type for a"),
    "one branch writes": ("if c {\nvar m: f32 = set 0.0\n}\nstore y[l], m", "on every path"),
    "only the loop writes": (
        "for i: i32 = 0, 8, 1 {\nvar m: f32 = set 0.0\n}\nstore y[l], m",
        "m written before, on every path",
    ),
    "only the body writes": (
        "while {\nd: bool = lt l, 1\n} d {\nvar m: f32 = set 0.0\n}\nstore y[l], m",
        "m written before",
    ),
    "only set writes a mutable one": ("var m: i32 = add l, 1", "an immutable result"),
    "undef of an immutable one": ("a: i32 = undef", "a mutable register"),
    "a step of 0": ("for i: i32 = 0, 8, 0 {\n}", "a step above 0"),
    "bounds of another type": ("for i: i64 = 0, 8, 1 {\n}", "bounds of the register's type"),
    "a bound that moves": (
        "var m: i32 = set 8\nfor i: i32 = 0, m, 1 {\nm = set 4\n}",
        "a loop around counts with it",
    ),
    "a condition of integers": ("if l {\n}", "a bool"),
    "a lane outside": ("a: f32 = subgroup_broadcast v lane=32", "a lane of the subgroup"),
    "a width of 3": ("a: f32 = subgroup_reduce v kind=add width=3", "a width of 1, 2, 4 .. 32"),
    "roles that overlap": (
        "roles {\na first=0 count=2 regs=0 {\n}\nb first=1 count=1 regs=0 {\n}\n}",
        "that no other role has",
    ),
    "roles outside": ("roles {\na first=0 count=3 regs=0 {\n}\n}", "that no other role has"),
    "a literal that wraps": ("a: i32 = add l, 4294967296", "a number that i32 holds"),
}


@pytest.mark.parametrize("text, said", BAD.values(), ids=BAD.keys())
def test_a_malformed_kernel_is_refused(text, said):
    with pytest.raises(VerifyError) as found:
        verify(kernel(text))
    assert said in str(found.value)


def test_the_refusal_names_the_kernel_and_the_instruction():
    with pytest.raises(VerifyError, match=r"kernel k: `a: f32 = add v, 1` needs operands"):
        verify(kernel("a: f32 = add v, 1"))


def test_an_attribute_too_few_is_refused():
    k = kernel("")
    bare = Ins("load", (Reg("a", Ty("f32")),), (Lit(0, Ty("i32")),), (("mem", "x"),))
    with pytest.raises(VerifyError, match="each of its attributes, sorted: cache, mem"):
        verify(replace(k, body=(*k.body, bare)))


@pytest.mark.parametrize(
    "was, now, said",
    [
        ("param y: f32[64] rw", "param x: f32[64] rw", "a name of its own"),
        ("param y: f32[64] rw align=16", "param y: f32[64] rw align=2", "aligned to a power"),
        ("param y: f32[64] rw", "param y: f33[64] rw", "a dtype of"),
        ("param y: f32[64] rw", "param y: mbar[64] rw", "a dtype of"),
        ("param y: f32[64] rw", "param y: f32[64] wr", "access r, w or rw"),
        ("imm n: i32", "imm n: i64", "a 32-bit dtype"),
        ("threads=64 subgroup=32", "threads=48 subgroup=32", "that divides 48 lanes"),
        ("threads=64 subgroup=32", "threads=0", "one lane at least"),
    ],
)
def test_a_wrong_declaration_is_refused(was, now, said):
    text = HEAD + "}\n"
    assert was in text
    with pytest.raises(VerifyError, match=said):
        verify(parse(text.replace(was, now)))


def test_names_are_words_so_that_the_text_can_be_read():
    odd = replace(parse("kernel k threads=1 {\n}\n"), name="a.b")
    with pytest.raises(VerifyError, match="a word as name"):
        verify(odd)


def test_the_device_must_have_what_the_kernel_asks_for():
    fits = parse("kernel k threads=64 {\n  shared s: f32[4096] align=16\n}\n")
    verify(fits, profile("webgpu-baseline"))
    over = parse("kernel k threads=64 {\n  shared s: f32[4097] align=16\n}\n")
    with pytest.raises(VerifyError, match="16384 bytes of workgroup memory or fewer: it has 16388"):
        verify(over, profile("webgpu-baseline"))
    with pytest.raises(VerifyError, match="256 lanes or fewer: it has 512"):
        verify(parse("kernel k threads=512 {\n}\n"), profile("webgpu-baseline"))
    with pytest.raises(VerifyError, match="subgroups of 0: it has 32"):
        verify(parse("kernel k threads=64 subgroup=32 {\n}\n"), profile("webgpu-baseline"))
    wide = parse("kernel k threads=64 {\n  a: i64 = set 1:i64\n}\n")
    verify(wide, profile("h200"))
    with pytest.raises(VerifyError, match="no 64-bit integers, as in a"):
        verify(wide, profile("webgpu-baseline"))


@pytest.mark.parametrize(
    "body, unread",
    [
        ("", "s: f32"),
        ("store s[l], v", "s: f32"),
        ("a: f32 = load s[l]", "bars: mbar"),
        ("mbar_wait bars[0], 0", "s: f32"),
        ("if c {\nfor i: i32 = 0, 4, 1 {\na: f32 = load s[i]\n}\n}\nmbar_wait bars[0], 0", ""),
        ("cp_async s[l], x[l] bypass=false nbytes=4\nmbar_wait bars[0], 0", "s: f32"),
    ],
)
def test_workgroup_memory_that_nothing_reads_is_found(body, unread):
    made = kernel(body)
    if not unread:
        check_arrays(made)
        return
    with pytest.raises(VerifyError, match=f"`shared {unread}.*an instruction that reads it"):
        check_arrays(made)


def test_every_op_has_a_typing_rule():
    assert sorted(KIR_OPS) == sorted([*RULES, *TARGET_RULES])
