"""What an op row is, and the rows that only spell one instruction an element."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from poot.codegen.kir.nodes import Ins
from poot.codegen.ptx.body import Body, count_of, dtype_of
from poot.codegen.ptx.memory import Memory
from poot.codegen.ptx.text import KIND
from poot.codegen.ptx.types import letter, narrow, widen
from poot.errors import DtypeLowering


@dataclass(frozen=True, slots=True)
class Scene:
    """What rows may ask for besides the body."""

    memory: Memory


Row = Callable[[Body, Ins, Scene], None]
Scalar = Callable[[Body, str, list[str]], str]


def int_attr(ins: Ins, name: str) -> int:
    value = ins.attr(name)
    assert isinstance(value, int), ins
    return value


def elementwise(scalar: Scalar) -> Row:
    """A row that does each element alone; `scalar` gets the first operand's dtype."""

    def row(b: Body, ins: Ins, scene: Scene) -> None:
        lanes = [b.get(a) for a in ins.args]
        count = count_of(ins.dsts[0])
        wide = [names * count if len(names) == 1 else names for names in lanes]
        dtype = dtype_of(ins.args[0])
        b.put(ins.dsts[0], [scalar(b, dtype, list(one)) for one in zip(*wide, strict=True)])

    return row


def in_f32(dtype: str) -> bool:
    """Whether the dtype computes in f32 and is rounded after."""
    return dtype in ("f16", "bf16")


def floats(op: str) -> Scalar:
    """One f32 instruction; 16-bit floats are widened before and rounded after."""

    def scalar(b: Body, dtype: str, names: list[str]) -> str:
        if dtype != "f32" and not in_f32(dtype):
            raise DtypeLowering(f"ptx has this op on floats: not on {dtype}")
        return narrow(b, dtype, b.ins(op, "r", *(widen(b, dtype, x) for x in names)))

    return scalar


def by_kind(float_op: str = "", int_op: str = "", bits_op: str = "", bool_op: str = "") -> Scalar:
    """The instruction for the dtype's kind: `int_op` gets its type, `bits_op` only its width."""
    of_floats = floats(float_op) if float_op else None

    def scalar(b: Body, dtype: str, names: list[str]) -> str:
        kind = KIND[dtype]
        if of_floats is not None and (dtype == "f32" or in_f32(dtype)):
            return of_floats(b, dtype, names)
        if bool_op and kind == "p":
            return b.ins(f"{bool_op}.pred", "p", *names)
        if int_op and kind in "rd" and dtype not in ("f32", "f8e4m3"):
            return b.ins(f"{int_op}.{letter(dtype)}", kind, *names)
        if bits_op and kind in "rd" and dtype not in ("f32", "f8e4m3"):
            return b.ins(f"{bits_op}.b{64 if kind == 'd' else 32}", kind, *names)
        raise DtypeLowering(f"ptx has no row of this op for {dtype}")

    return scalar
