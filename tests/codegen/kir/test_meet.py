"""Where lanes meet, control is uniform."""

from __future__ import annotations

import pytest

from poot.codegen.kir.meet import check_meetings
from poot.codegen.kir.text import parse
from poot.errors import VerifyError

pytestmark = pytest.mark.quick


def check(text: str, threads: int = 64, width: str = " subgroup=32") -> None:
    head = f"kernel k threads={threads}{width} {{\nparam x: f32[64] r align=16\nl: i32 = lane\n"
    check_meetings(parse(head + text + "\n}\n"))


GOOD = {
    "straight": "barrier scope=group",
    "a uniform branch": (
        "g: i32 = group_id axis=0\nc: bool = lt g, 3\nif c {\nbarrier scope=group\n}"
    ),
    "a counted loop": "for i: i32 = 0, 8, 1 {\nbarrier scope=group\n}",
    "a loaded bound": ("v: f32 = load x[0]\nc: bool = lt v, 3.0\nif c {\nbarrier scope=group\n}"),
    "whole subgroups": (
        "w: i32 = div l, 32\nc: bool = lt w, 1\nif c {\na: i32 = shuffle_xor l mask=1\n"
        "barrier scope=subgroup\n}"
    ),
    "a vote": (
        "v: f32 = load x[l]\nc: bool = lt v, 3.0\nd: bool = vote_any c\n"
        "if d {\na: i32 = shuffle_xor l mask=1\n}"
    ),
    "a role's own barrier": "roles {\na first=0 count=1 regs=0 {\nbarrier scope=role\n}\n}",
}


@pytest.mark.parametrize("text", GOOD.values(), ids=GOOD.keys())
def test_uniform_control_passes(text):
    check(text)


BAD = {
    "a lane's branch": (
        "c: bool = lt l, 3\nif c {\nbarrier scope=group\n}",
        "uniform in the group",
    ),
    "its other side": (
        "c: bool = lt l, 3\nif c {\n} else {\nbarrier scope=group\n}",
        "uniform in the group",
    ),
    "a lane's loop": (
        "for i: i32 = 0, l, 1 {\nbarrier scope=group\n}",
        "uniform in the group",
    ),
    "lanes that leave at other trips": (
        "for i: i32 = l, 100, 64 {\nbarrier scope=group\n}",
        "uniform in the group",
    ),
    "a while of lanes": (
        "var m: i32 = set l\nwhile {\nc: bool = lt m, 3\nbarrier scope=group\n} c {\nm = set 3\n}",
        "uniform in the group",
    ),
    "what a lane's branch set": (
        "var m: i32 = set 0\nc: bool = lt l, 3\nif c {\nm = set 1\n}\nd: bool = eq m, 0\n"
        "if d {\nbarrier scope=group\n}",
        "uniform in the group",
    ),
    "a shuffle of some": (
        "c: bool = lt l, 3\nif c {\na: i32 = shuffle_xor l mask=1\n}",
        "uniform in the subgroup",
    ),
    "a subgroup's branch around a group's barrier": (
        "w: i32 = subgroup_id\nc: bool = lt w, 1\nif c {\nbarrier scope=group\n}",
        "uniform in the group",
    ),
    "the group's barrier in a role": (
        "roles {\na first=0 count=1 regs=0 {\nbarrier scope=group\n}\n}",
        "outside of roles",
    ),
    "a named barrier of some": (
        "c: bool = lt l, 3\nif c {\nbarrier scope=(named, 1, 64)\n}",
        "uniform in the subgroup",
    ),
    "roles of some": (
        "c: bool = lt l, 3\nif c {\nroles {\na first=0 count=1 regs=0 {\n}\n}\n}",
        "roles need uniform control",
    ),
}


@pytest.mark.parametrize("text, said", BAD.values(), ids=BAD.keys())
def test_control_that_parts_is_refused(text, said):
    with pytest.raises(VerifyError) as found:
        check(text)
    assert said in str(found.value)


def test_a_subgroup_op_needs_a_kernel_of_that_width():
    with pytest.raises(VerifyError, match="a kernel with a subgroup width"):
        check("a: i32 = shuffle_xor l mask=1", width="")


def test_a_product_needs_the_whole_warpgroup():
    text = """
      shared a: bf16[4096] align=1024
      l: i32 = lane
      w: i32 = div l, {}
      c: bool = lt w, 1
      var acc: frag[wgmma,acc,64,64,f32] = undef
      if c {{
        acc = wgmma a[0], a[0] k=64 zero=true
      }}
    }}
    """
    head = "kernel k threads=256 subgroup=32 {"
    check_meetings(parse(head + text.format(128)))
    with pytest.raises(VerifyError, match="uniform in the warpgroup"):
        check_meetings(parse(head + text.format(32)))
