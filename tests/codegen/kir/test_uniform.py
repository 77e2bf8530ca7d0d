"""Which registers are the same in all lanes, differ by a stride, or anyhow."""

from __future__ import annotations

import time

import pytest

from poot.codegen.kir.build import KernelBuilder
from poot.codegen.kir.nodes import For, If, Kernel, Reg, Ty
from poot.codegen.kir.text import parse
from poot.codegen.kir.uniform import Uniformity, analyse

pytestmark = pytest.mark.quick

HEAD = """\
kernel k threads=64 subgroup=32 {
  param x: f32[4096] r align=16
  imm n: i32
  l: i32 = lane
  g: i32 = group_id axis=0
  u: i32 = imm name=n
  i0: i32 = mul g, 64
  i: i32 = add i0, l
"""


def kernel(text: str) -> Kernel:
    return parse(HEAD + text + "\n}\n")


def kind(u: Uniformity, name: str) -> str:
    spread = u.of(Reg(name, Ty("i32")))
    return f"linear {spread.stride}" if spread.kind == "linear" else spread.kind


CASES = {
    "a group's number": ("r: i32 = add g, u", "uniform", "uniform"),
    "an index of lanes": ("r: i32 = add i, 3", "linear 1", "linear 1"),
    "four elements a lane": ("r: i32 = mul i, 4", "linear 4", "linear 4"),
    "shifted": ("r: i32 = shl i, 3", "linear 8", "linear 8"),
    "backwards": ("r: i32 = sub u, i", "linear -1", "linear -1"),
    "in 64 bits": ("r: i64 = cast i", "linear 1", "linear 1"),
    "the same lane taken away": ("r: i32 = sub i, l", "uniform", "uniform"),
    "the row of a lane": ("r: i32 = div l, 32", "varying", "uniform"),
    "the row of an index": ("r: i32 = div i, 64", "uniform", "uniform"),
    "its place in the row": ("r: i32 = rem i, 64", "linear 1", "linear 1"),
    "its place in a half row": ("r: i32 = rem i, 32", "varying", "linear 1"),
    "masked": ("r: i32 = and i, 63", "linear 1", "linear 1"),
    "shifted down": ("r: i32 = shr l, 5", "varying", "uniform"),
    "divided apart": ("a: i32 = mul i, 8\nr: i32 = div a, 4", "linear 2", "linear 2"),
    "a base that may be negative": (
        "a: i32 = mul u, 64\nb: i32 = add a, l\nr: i32 = div b, 64",
        "varying",
        "varying",
    ),
    "the product of two": ("r: i32 = mul l, u", "varying", "varying"),
    "a float of a lane": ("r: f32 = cast l", "varying", "varying"),
    "a load at one place": ("r: f32 = load x[g]", "uniform", "uniform"),
    "a load along the lanes": ("r: f32 = load x[i]", "varying", "varying"),
    "another's word": ("r: f32 = load x[g] cache=relaxed", "varying", "varying"),
    "a comparison": ("r: bool = lt i, 100", "varying", "varying"),
    "a comparison at a whole row": ("r: bool = lt i, 128", "uniform", "uniform"),
    "a comparison at a half row": ("r: bool = ge l, 32", "varying", "uniform"),
    "one that a row's first lane alone fulfils": ("r: bool = le i, 128", "varying", "varying"),
    "a bound before its index": ("r: bool = gt 128, i", "uniform", "uniform"),
    "a subgroup": ("r: i32 = subgroup_id", "varying", "uniform"),
    "a lane of a subgroup": ("r: i32 = subgroup_lane", "varying", "linear 1"),
    "a sum": ("r: i32 = subgroup_reduce l kind=add width=32", "varying", "uniform"),
    "a partial sum": ("r: i32 = subgroup_reduce l kind=add width=16", "varying", "varying"),
    "a broadcast": ("r: i32 = subgroup_broadcast l lane=0", "varying", "uniform"),
    "chosen alike": (
        "c: bool = lt g, u\nr: i32 = select c, i, l",
        "linear 1",
        "linear 1",
    ),
    "chosen by lane": ("c: bool = lt l, 3\nr: i32 = select c, g, u", "varying", "varying"),
    "a counter": (
        "var r: i32 = set 0\nfor j: i32 = 0, 8, 1 {\na: i32 = add r, 4\nr = set a\n}",
        "uniform",
        "uniform",
    ),
    "a running index": (
        "var r: i32 = set i\nfor j: i32 = 0, 8, 1 {\na: i32 = add r, 64\nr = set a\n}",
        "linear 1",
        "linear 1",
    ),
    "what a lane's branch sets": (
        "var r: i32 = set 0\nc: bool = lt l, 3\nif c {\nr = set 1\n}",
        "varying",
        "varying",
    ),
    "what a subgroup's branch sets": (
        "var r: i32 = set 0\nw: i32 = div l, 32\nc: bool = lt w, 1\nif c {\nr = set 1\n}",
        "varying",
        "uniform",
    ),
    "what lives inside the branch": (
        "c: bool = lt l, 3\nif c {\nvar r: i32 = set 0\nr = set 1\n}",
        "uniform",
        "uniform",
    ),
    "a counter of lanes that leave": (
        "var r: i32 = set 0\nfor j: i32 = l, 100, 64 {\na: i32 = add r, 1\nr = set a\n}",
        "varying",
        "varying",
    ),
    "the register of a strided loop": (
        "for r: i32 = l, 100, 64 {\n}",
        "linear 1",
        "linear 1",
    ),
    "a head read after lanes left": (
        "var m: i32 = set l\nvar e: i32 = set 0\nwhile {\nr: i32 = add e, 1\n"
        "c: bool = lt m, 9\n} c {\nm = set 9\n}\nz: i32 = set r",
        "varying",
        "varying",
    ),
    "what only one role sets and reads": (
        "var r: i32 = set 0\nroles {\na first=0 count=1 regs=0 {\nr = set 1\n}\n}\nz: i32 = set r",
        "varying",
        "uniform",
    ),
}


@pytest.mark.parametrize("text, group, subgroup", CASES.values(), ids=CASES.keys())
def test_a_register_has_its_class(text, group, subgroup):
    k = kernel(text)
    assert kind(analyse(k), "r") == group
    assert kind(analyse(k, 32), "r") == subgroup


def test_lanes_part_at_a_branch_and_at_a_loop_they_leave_apart():
    k = kernel(
        "c: bool = lt l, 3\nif c {\n}\nfor j: i32 = l, 100, 64 {\n}\n"
        "e: i32 = add l, 64\nfor j2: i32 = l, e, 1 {\n}"
    )
    branch, strided, equal = (s for s in k.body if isinstance(s, (If, For)))
    u = analyse(k)
    assert u.diverges(branch)
    assert u.diverges(strided)
    assert not u.diverges(equal)


def chain(length: int) -> Kernel:
    """Counters, each of which follows the one before, the first of them a lane's: classes fall down
    the whole chain.
    """
    k = KernelBuilder("chain", 64)
    regs = [k.var(0, Ty("i32")) for _ in range(length)]
    with k.for_(0, 8):
        for a, b in zip(regs[::-1], regs[-2::-1], strict=False):
            k.set(a, a + b)
        with k.if_(k.lane() < 3):
            k.set(regs[0], 1)
    return k.kernel()


def test_the_cost_is_linear_in_the_kernel():
    times: list[float] = []
    for length in (500, 4000):
        k = chain(length)
        start = time.perf_counter()
        u = analyse(k)
        times.append(time.perf_counter() - start)
        assert not u.of(k.body[-2].dsts[0]).is_uniform
    assert times[1] < 40 * times[0]
