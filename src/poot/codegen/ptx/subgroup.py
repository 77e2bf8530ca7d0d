"""Rows across the lanes of a warp: shuffles, reductions, votes. A subgroup is 32 lanes.

A whole-warp reduction of 32-bit integers is one `redux`; others are a butterfly of exchanges, so
that every lane of a run adds in an order that gives all the same.
"""

from __future__ import annotations

from poot.codegen.kir.nodes import Ins
from poot.codegen.ptx.body import Body, count_of, dtype_of
from poot.codegen.ptx.rows import Row, Scene, int_attr
from poot.codegen.ptx.scalars import FOLDS
from poot.codegen.ptx.text import KIND
from poot.codegen.ptx.types import letter

ALL = "0xFFFFFFFF"
WIDTH = 32


def exchange(b: Body, dtype: str, value: str, mode: str, which: str) -> str:
    """The value of another lane: mode "idx" (lane `which`) or "bfly" (own ^ `which`)."""
    kind = KIND[dtype]

    def move(word: str) -> str:
        return b.ins(f"shfl.sync.{mode}.b32", "r", word, which, "31", ALL)

    if kind == "r":
        return move(value)
    if kind == "p":
        word = b.ins("selp.b32", "r", "1", "0", value)
        return b.ins("setp.ne.b32", "p", move(word), "0")
    if kind == "h":
        return b.ins("cvt.u16.u32", "h", move(b.ins("cvt.u32.u16", "r", value)))
    low, high = b.temp("r"), b.temp("r")
    source = value if value.startswith("$") else b.ins("mov.b64", "d", value)
    b.do(f"mov.b64 {{{low}, {high}}}, {source}")
    return b.ins("mov.b64", "d", f"{{{move(low)}, {move(high)}}}")


def _exchanges(b: Body, ins: Ins, mode: str, which: str) -> None:
    dtype = dtype_of(ins.args[0])
    b.put(ins.dsts[0], [exchange(b, dtype, v, mode, which) for v in b.get(ins.args[0])])


def shuffle(b: Body, ins: Ins, scene: Scene) -> None:
    _exchanges(b, ins, "idx", b.one(ins.args[1]))


def shuffle_xor(b: Body, ins: Ins, scene: Scene) -> None:
    _exchanges(b, ins, "bfly", str(int_attr(ins, "mask")))


def broadcast(b: Body, ins: Ins, scene: Scene) -> None:
    _exchanges(b, ins, "idx", str(int_attr(ins, "lane")))


def reduce(b: Body, ins: Ins, scene: Scene) -> None:
    dtype, kind, width = dtype_of(ins.args[0]), str(ins.attr("kind")), int_attr(ins, "width")
    out: list[str] = []
    for value in b.get(ins.args[0]):
        if width == WIDTH and dtype in ("i32", "u32"):
            out.append(b.ins(f"redux.sync.{kind}.{letter(dtype)}", "r", value, ALL))
            continue
        step = 1
        while step < width:
            other = exchange(b, dtype, value, "bfly", str(step))
            value = FOLDS[kind](b, dtype, [value, other])
            step *= 2
        out.append(value)
    assert len(out) == count_of(ins.dsts[0]), ins
    b.put(ins.dsts[0], out)


def vote(which: str) -> Row:
    def row(b: Body, ins: Ins, scene: Scene) -> None:
        b.put(ins.dsts[0], [b.ins(f"vote.sync.{which}.pred", "p", b.one(ins.args[0]), ALL)])

    return row


def ballot(b: Body, ins: Ins, scene: Scene) -> None:
    b.put(ins.dsts[0], [b.ins("vote.sync.ballot.b32", "r", b.one(ins.args[0]), ALL)])


def elect(b: Body, ins: Ins, scene: Scene) -> None:
    """sm_90 has an instruction for it; before, lane 0."""
    if b.arch >= 90:
        chosen, lane = b.temp("p"), b.temp("r")
        b.do(f"elect.sync {lane}|{chosen}, {ALL}")
        b.put(ins.dsts[0], [chosen])
        return
    lane = b.once("laneid", "r", "mov.u32", "%laneid")
    b.put(ins.dsts[0], [b.ins("setp.eq.s32", "p", lane, "0")])
