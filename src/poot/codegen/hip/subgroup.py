"""Rows across the lanes of a wave. A kernel says its width, and a device of another refuses it.

A reduction is a butterfly of exchanges, so that every lane of a run ends with the same bits.
"""

from __future__ import annotations

from collections.abc import Callable

from poot.codegen.hip.body import Body
from poot.codegen.hip.memory import c_type_of
from poot.codegen.hip.types import dtype_of, kind_of, rounded
from poot.codegen.kir.nodes import Ins

_FLOAT = {"add": "{} + {}", "max": "__builtin_fmaxf({}, {})", "min": "__builtin_fminf({}, {})"}
_WHOLE = {"add": "{0} + {1}", "max": "{0} > {1} ? {0} : {1}", "min": "{0} < {1} ? {0} : {1}"}


def _exchange(b: Body, ins: Ins, text: str) -> None:
    """Puts what a call of `text` gives; `{}` stands for the lane's own value. A bool travels as an
    int."""
    own = b.one(ins.args[0])
    if dtype_of(ins.args[0].type) == "bool":
        b.put(ins.dsts[0], [f"{text.format(f'({own} ? 1 : 0)')} != 0"])
    else:
        b.put(ins.dsts[0], [text.format(own)])


def shuffle(b: Body, ins: Ins) -> None:
    _exchange(b, ins, f"__shfl({{}}, {b.one(ins.args[1])})")


def shuffle_xor(b: Body, ins: Ins) -> None:
    _exchange(b, ins, f"__shfl_xor({{}}, {ins.attr('mask')})")


def broadcast(b: Body, ins: Ins) -> None:
    _exchange(b, ins, f"__shfl({{}}, {ins.attr('lane')})")


def reduce(b: Body, ins: Ins) -> None:
    dtype, kind, width = dtype_of(ins.args[0].type), str(ins.attr("kind")), ins.attr("width")
    assert isinstance(width, int), ins
    fold = (_FLOAT if kind_of(dtype) == "float" else _WHOLE)[kind]
    held, name = c_type_of(dtype), f"reduce_{kind}_{dtype}_{width}"
    b.use_dtype(dtype)
    lines = [
        f"for (int step = {width // 2}; step > 0; step /= 2) {{",
        f"  const {held} other = __shfl_xor(v, step);",
        f"  v = {rounded(dtype, fold.format('v', 'other'))};",
        "}",
        "return v;",
    ]
    b.function(name, held, f"{held} v", lines)
    b.put(ins.dsts[0], [f"{name}({lane})" for lane in b.lanes(ins.args[0])])


def vote(which: str) -> Callable[[Body, Ins], None]:
    def row(b: Body, ins: Ins) -> None:
        b.put(ins.dsts[0], [f"__{which}({b.one(ins.args[0])} ? 1 : 0) != 0"])

    return row


def ballot(b: Body, ins: Ins) -> None:
    b.put(ins.dsts[0], [f"(unsigned)__ballot({b.one(ins.args[0])} ? 1 : 0)"])


def subgroup_id(b: Body, ins: Ins) -> None:
    b.put(ins.dsts[0], [f"(int)threadIdx.x / {b.wave}"])


def subgroup_lane(b: Body, ins: Ins) -> None:
    b.put(ins.dsts[0], [f"(int)threadIdx.x % {b.wave}"])


def elect(b: Body, ins: Ins) -> None:
    b.put(ins.dsts[0], [f"(int)threadIdx.x % {b.wave} == 0"])
