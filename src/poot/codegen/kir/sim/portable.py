"""The portable ops as closures, and the machine that runs whole workgroups, many at once, as one
vector of lanes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import numpy as np

from poot.codegen.kir.nodes import Ins, Ty
from poot.codegen.kir.sim.poison import Poison
from poot.codegen.kir.sim.program import Machine, Maker, Step
from poot.codegen.kir.sim.values import CHECKED, blend, dtype_of, pure
from poot.codegen.kir.sim.wave import Bools, Ints, Value, Wave

Slots = tuple[int, ...]


def _make_pure(ins: Ins, dsts: Slots, args: Slots) -> Step:
    fn = pure(ins)
    assert fn is not None, ins
    d = dsts[0]
    if len(args) == 2:
        a, b = args

        def two(wave: Wave) -> None:
            regs = wave.regs
            regs[d] = fn(regs[a], regs[b])

        return two
    if len(args) == 1:
        a = args[0]

        def one(wave: Wave) -> None:
            wave.regs[d] = fn(wave.regs[a])

        return one

    def many(wave: Wave) -> None:
        wave.regs[d] = fn(*[wave.regs[a] for a in args])

    return many


def _make_checked(ins: Ins, dsts: Slots, args: Slots) -> Step:
    if pure(ins) is not None:
        return _make_pure(ins, dsts, args)
    fn = CHECKED[ins.op]

    def run(wave: Wave) -> None:
        wave.regs[dsts[0]] = fn(wave, ins, tuple(wave.regs[a] for a in args))

    return run


def is_poison(value: object, kind: str) -> bool:
    return isinstance(value, Poison) and value.kind == kind


def assign(wave: Wave, slot: int, value: Value) -> None:
    """Writes a mutable register in the active lanes."""
    old = wave.regs[slot]
    if is_poison(old, "in-flight"):
        bool(old)  # fails
    partly = wave.mask is not None and not isinstance(old, Poison)
    wave.regs[slot] = blend(wave.mask, value, old) if partly and wave.mask is not None else value


def _make_set(ins: Ins, dsts: Slots, args: Slots) -> Step:
    d, a = dsts[0], args[0]
    if not ins.dsts[0].mutable:

        def copy(wave: Wave) -> None:
            wave.regs[d] = wave.regs[a]

        return copy

    def run(wave: Wave) -> None:
        assign(wave, d, wave.regs[a])

    return run


def _make_undef(ins: Ins, dsts: Slots, args: Slots) -> Step:
    poison = Poison("uninitialised", f"register {ins.dsts[0].name} holds nothing yet")

    def run(wave: Wave) -> None:
        if wave.mask is None or isinstance(wave.regs[dsts[0]], Poison):
            wave.regs[dsts[0]] = cast("Value", poison)  # it stands for a value and fails when used

    return run


def _i32(value: Ints | int) -> Value:
    return np.asarray(value).astype(np.int32)


def _axis(groups: Ints, wave: Wave) -> Value:
    """A coordinate of each lane's group; a scalar where all have the same."""
    if (groups == groups[0]).all():
        return cast("Value", np.int32(groups[0]))  # a numpy scalar: the same in all lanes
    return _i32(groups[wave.place.slot])


def _make_id(ins: Ins, dsts: Slots, args: Slots) -> Step:
    axis = cast("int", ins.attr("axis", 0))  # verified

    def run(wave: Wave) -> None:
        place = wave.place
        if ins.op == "group_id":
            value = _axis(np.asarray([g[axis] for g in place.groups], np.int64), wave)
        elif ins.op == "num_groups":
            value = cast("Value", np.int32(place.grid[axis]))  # a numpy scalar, as above
        elif ins.op == "subgroup_id":
            value = _i32(place.lane // place.width)
        elif ins.op == "subgroup_lane":
            value = _i32(place.lane % place.width)
        else:
            value = _i32(place.lane)
        wave.regs[dsts[0]] = value

    return run


def _make_imm(ins: Ins, dsts: Slots, args: Slots) -> Step:
    name = str(ins.attr("name"))

    def run(wave: Wave) -> None:
        wave.regs[dsts[0]] = wave.imms[name]

    return run


def _count(ins: Ins) -> int:
    type = ins.dsts[0].type if ins.dsts else ins.args[1].type
    return type.lanes if isinstance(type, Ty) else 1


def _make_load(ins: Ins, dsts: Slots, args: Slots) -> Step:
    mem, count, d, a = str(ins.attr("mem")), _count(ins), dsts[0], args[0]

    def run(wave: Wave) -> None:
        wave.regs[d] = wave.memory[mem].load(wave, wave.regs[a], count, ins)

    return run


def _make_prefetch(ins: Ins, dsts: Slots, args: Slots) -> Step:
    mem = str(ins.attr("mem"))

    def run(wave: Wave) -> None:
        wave.memory[mem].prefetch(wave, wave.regs[args[0]], ins)

    return run


def _make_store(ins: Ins, dsts: Slots, args: Slots) -> Step:
    mem, count = str(ins.attr("mem")), _count(ins)

    def run(wave: Wave) -> None:
        wave.memory[mem].store(wave, wave.regs[args[0]], wave.regs[args[1]], count, ins)

    return run


def _make_atomic(ins: Ins, dsts: Slots, args: Slots) -> Step:
    mem = str(ins.attr("mem"))

    def run(wave: Wave) -> None:
        wave.regs[dsts[0]] = wave.memory[mem].atomic(
            wave, wave.regs[args[0]], wave.regs[args[1]], ins
        )

    return run


def _make_fence(ins: Ins, dsts: Slots, args: Slots) -> Step:
    def run(wave: Wave) -> None:
        wave.is_fenced = wave.is_fenced or ins.attr("scope") in ("group", "device")

    return run


# Subgroup ops: rows of the reshaped lanes are subgroups


def _subgroups(wave: Wave, ins: Ins, value: Value) -> Value:
    """[subgroups, width]. Fails where a subgroup is partly active."""
    width = min(wave.place.width, wave.lanes)
    if wave.mask is not None:
        rows = wave.mask.reshape(-1, width)
        torn = rows.any(axis=1) & ~rows.all(axis=1)
        if torn.any():
            wave.fail(
                "divergent-barrier", "part of a subgroup reaches it", ins, np.repeat(torn, width)
            )
    return wave.spread(value).reshape(-1, width)


def _shuffle(wave: Wave, ins: Ins, rows: Value, args: tuple[Value, ...]) -> Value:
    lane = np.asarray(wave.spread(args[1]), np.int64)
    wave.refuse(
        (lane < 0) | (lane >= rows.shape[1]),
        "undefined",
        "a shuffle from outside the subgroup",
        ins,
    )
    inside = np.clip(lane, 0, rows.shape[1] - 1).reshape(rows.shape)
    return np.take_along_axis(rows, inside, axis=1)


def _shuffle_xor(wave: Wave, ins: Ins, rows: Value, args: tuple[Value, ...]) -> Value:
    return rows[:, np.arange(rows.shape[1]) ^ cast("int", ins.attr("mask"))]  # verified: an int


def _broadcast(wave: Wave, ins: Ins, rows: Value, args: tuple[Value, ...]) -> Value:
    lane = cast("int", ins.attr("lane"))  # verified: an int
    return np.broadcast_to(rows[:, lane : lane + 1], rows.shape)


def _reduce(wave: Wave, ins: Ins, rows: Value, args: tuple[Value, ...]) -> Value:
    """A butterfly, so that every lane of a run adds in an order that gives all the same."""
    width = cast("int", ins.attr("width"))  # verified: an int
    dtype = dtype_of(ins.dsts[0].type)
    twin = Ins(str(ins.attr("kind")), ins.dsts, (*ins.args, *ins.args))
    fold = pure(twin)
    assert fold is not None, dtype
    step = 1
    while step < width:
        rows = fold(rows, rows[:, np.arange(rows.shape[1]) ^ step])
        step *= 2
    return rows


def _vote(wave: Wave, ins: Ins, rows: Value, args: tuple[Value, ...]) -> Value:
    held: Bools = np.any(rows, axis=1) if ins.op == "vote_any" else np.all(rows, axis=1)
    return np.broadcast_to(held[:, None], rows.shape)


def _ballot(wave: Wave, ins: Ins, rows: Value, args: tuple[Value, ...]) -> Value:
    bits = np.left_shift(np.uint32(1), np.arange(rows.shape[1], dtype=np.uint32))
    word = np.where(rows, bits, np.uint32(0)).sum(axis=1, dtype=np.uint32)
    return np.broadcast_to(word[:, None], rows.shape)


SubgroupOp = Callable[[Wave, Ins, Value, tuple[Value, ...]], Value]
_SUBGROUP: dict[str, SubgroupOp] = {
    "shuffle": _shuffle,
    "shuffle_xor": _shuffle_xor,
    "subgroup_broadcast": _broadcast,
    "subgroup_reduce": _reduce,
    "vote_any": _vote,
    "vote_all": _vote,
    "ballot": _ballot,
}


def _make_subgroup(ins: Ins, dsts: Slots, args: Slots) -> Step:
    fn = _SUBGROUP[ins.op]

    def run(wave: Wave) -> None:
        given = tuple(wave.regs[a] for a in args)
        wave.regs[dsts[0]] = fn(wave, ins, _subgroups(wave, ins, given[0]), given).reshape(-1)

    return run


def pass_barrier(wave: Wave, mask: Bools | None) -> None:
    """Starts the next epoch in the lanes of mask."""
    wave.epoch = wave.epoch + (1 if mask is None else mask.astype(np.int64))
    if wave.is_fenced:
        wave.fenced_epoch = wave.fenced_epoch + (1 if mask is None else mask.astype(np.int64))
        wave.is_fenced = False


def _make_group_barrier(ins: Ins, dsts: Slots, args: Slots) -> Step:
    """A barrier of groups that run as one wave: each has all its lanes here, or none."""

    def run(wave: Wave) -> None:
        mask = wave.mask
        if mask is not None:
            rows = mask.reshape(-1, wave.place.threads)
            torn = rows.any(axis=1) & ~rows.all(axis=1)
            if torn.any():
                bad = np.repeat(torn, wave.place.threads) & mask
                wave.fail("divergent-barrier", "part of the workgroup reaches it", ins, bad)
        pass_barrier(wave, mask)

    return run


def _make_agree(ins: Ins, dsts: Slots, args: Slots) -> Step:
    """Every lane of a workgroup that runs here holds the same, or the generator was wrong."""

    def run(wave: Wave) -> None:
        value = wave.regs[args[0]]
        rows = wave.spread(value).reshape(len(wave.place.groups), -1)
        active = np.ones(rows.shape, np.bool_)
        if wave.mask is not None:
            active = wave.mask.reshape(rows.shape)
        first = np.take_along_axis(rows, active.argmax(axis=1)[:, None], axis=1)
        same = (rows == first) | ((rows != rows) & (first != first))
        wave.refuse(~same.reshape(-1), "undefined", "lanes of a workgroup disagree", ins)
        wave.regs[dsts[0]] = value

    return run


_PURE = (
    "add sub mul mulhi fma neg abs min max nanmin nanmax floor rint sqrt rsqrt rcp exp2 log2 isnan "
    "and or xor not eq ne lt le gt ge select bitcast vec extract"
)
PORTABLE: dict[str, Maker] = {
    **dict.fromkeys(_PURE.split(), _make_pure),
    **dict.fromkeys(CHECKED, _make_checked),
    "set": _make_set,
    "undef": _make_undef,
    **dict.fromkeys(("lane", "group_id", "num_groups", "subgroup_id", "subgroup_lane"), _make_id),
    "imm": _make_imm,
    "load": _make_load,
    "prefetch": _make_prefetch,
    "store": _make_store,
    "atomic": _make_atomic,
    "fence": _make_fence,
    "agree": _make_agree,
    **dict.fromkeys(_SUBGROUP, _make_subgroup),
}
VECTOR = Machine("vector", {**PORTABLE, "barrier": _make_group_barrier}, {}, spins=False)
