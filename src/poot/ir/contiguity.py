"""Which axis of a matmul's right operand lies in a row in memory: the summed one, or columns."""

from __future__ import annotations

from collections.abc import Mapping

from poot.ir.attrs import int_attr, ints_attr
from poot.ir.graph import Eqn, Var
from poot.ir.shapes import shape_groups

Tags = tuple[str, ...]


def is_summed_axis_in_a_row(makers: Mapping[int, Eqn], matmul: Eqn) -> bool:
    """The right operand's largest input has the summed axis innermost ([out, in] weights). `makers`
    has the eqn of each value that isn't an input."""
    var = matmul.ins[1]
    tags: Tags = ("b",) * (len(var.type.shape) - 2) + ("k", "n")
    while var.id in makers:
        eqn = makers[var.id]
        if not eqn.ins:
            break
        var, tags = _back(eqn, tags)
    wide = [t for t, n in zip(tags, var.type.shape, strict=True) if n > 1]
    return bool(wide) and wide[-1] == "k"


def _back(eqn: Eqn, tags: Tags) -> tuple[Var, Tags]:
    """The operand that an eqn's elements mostly come from, and its axes' tags from the result's."""
    x = max(eqn.ins, key=lambda v: v.type.elems)
    shape = x.type.shape
    if eqn.op == "transpose":
        own = [""] * len(shape)
        for axis, source in enumerate(ints_attr(eqn, "perm")):
            own[source] = tags[axis]
        return x, tuple(own)
    if eqn.op == "reshape":
        return x, _reshaped(eqn.out.type.shape, shape, tags)
    if eqn.op == "gather":
        x, index = eqn.ins
        axis = int_attr(eqn, "axis")
        rank = len(index.type.shape)
        return x, (*tags[:axis], *(tags[axis : axis + 1] or ("b",)), *tags[axis + rank :])
    spare = len(tags) - len(shape)
    return x, tags[spare:] if spare >= 0 else ("b",) * -spare + tags


def _reshaped(old: tuple[int, ...], new: tuple[int, ...], tags: Tags) -> Tags:
    """Each run of axes takes the tag of its last axis of more than one element."""
    out: list[str] = []
    for before, after in shape_groups(old, new):
        mine = [tags[i] for i in before if old[i] > 1]
        out.extend([mine[-1] if mine else "b"] * len(after))
    return tuple(out)
