"""Asynchronous copies. What they move lands when it must: at the wait that ends them, or when a
phase of an mbarrier lacks nothing but their bytes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import numpy as np

from poot.codegen.kir.frags import swizzle
from poot.codegen.kir.nodes import ELEMENT_BYTES, Blob, Ins, Token
from poot.codegen.kir.sim.barriers import mbarrier, warp_of
from poot.codegen.kir.sim.memory import Space
from poot.codegen.kir.sim.products import end_products
from poot.codegen.kir.sim.program import Maker, Step
from poot.codegen.kir.sim.team import TensorMap, Warp
from poot.codegen.kir.sim.wave import Bools, Ints, Value, Wave
from poot.codegen.kir.target_rules import SWIZZLE_NBYTES

Slots = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _Copy:
    """One cp_async: which lane moves which elements where, [elements, lanes], and each lane's group
    number.
    """

    dst: Space
    src: Space
    to: Ints
    at: Ints
    is_real: Bools
    lanes: Ints
    group: Ints


class CopyQueue:
    """A wave's copies by cp_async: how many groups each lane has closed, and what hasn't landed."""

    def __init__(self, lanes: int) -> None:
        self.closed = np.zeros(lanes, np.int64)
        self.open: list[_Copy] = []


def _queue(warp: Warp) -> CopyQueue:
    key = f"copies {warp.number}"
    found = warp.team.objects.setdefault(key, CopyQueue(warp.lanes))
    assert isinstance(found, CopyQueue)
    return found


def _make_cp_async(ins: Ins, dsts: Slots, args: Slots) -> Step:
    dst, mem = str(ins.attr("dst")), str(ins.attr("mem"))
    nbytes = cast("int", ins.attr("nbytes"))  # verified

    def run(wave: Wave) -> None:
        warp = warp_of(wave)
        into, out_of = warp.team.spaces[dst], warp.team.spaces[mem]
        count = max(1, nbytes // ELEMENT_BYTES[into.dtype])
        lanes = warp.active_lanes()
        is_real = np.ones(len(lanes), np.bool_)
        if len(args) == 3:
            is_real = np.asarray(warp.spread(warp.regs[args[2]]), np.bool_)[lanes]
        to = into.flat(warp, warp.spread(warp.regs[args[0]]), count, ins).reshape(count, -1)[
            :, lanes
        ]
        outer = warp.mask
        chosen = np.zeros(warp.lanes, np.bool_)
        chosen[lanes[is_real]] = True
        warp.mask = chosen
        at = out_of.flat(warp, warp.spread(warp.regs[args[1]]), count, ins).reshape(count, -1)[
            :, lanes
        ]
        warp.mask = outer
        out_of.loads += int(is_real.sum()) * count
        who = np.broadcast_to(lanes, to.shape)
        warp.team.tracker(dst).begin_write(warp, to.reshape(-1), who.reshape(-1), ins)
        queue = _queue(warp)
        queue.open.append(_Copy(into, out_of, to, at, is_real, lanes, queue.closed[lanes].copy()))

    return run


def _land(warp: Warp, copy: _Copy, chosen: Bools) -> _Copy:
    """Writes what the chosen lanes move; the copy without them."""
    to, at, is_real = copy.to[:, chosen], copy.at[:, chosen], copy.is_real[chosen]
    values = copy.src.get(at)
    values = np.where(is_real, values, np.zeros((), values.dtype))
    flat = to.reshape(-1)
    copy.dst.put(flat, values.reshape(-1))
    if copy.dst.written is not None:
        copy.dst.written[flat] = True
    copy.dst.stores += flat.size
    threads = np.broadcast_to(warp.place.lane[copy.lanes[chosen]], to.shape).reshape(-1)
    warp.team.tracker(copy.dst.name).end_write(warp, flat, threads, is_async_proxy=False)
    left = np.logical_not(chosen)
    lanes, group = copy.lanes[left], copy.group[left]
    return _Copy(
        copy.dst, copy.src, copy.to[:, left], copy.at[:, left], copy.is_real[left], lanes, group
    )


def _end_copies(warp: Warp, pending: int) -> None:
    queue = _queue(warp)
    active = np.zeros(warp.lanes, np.bool_)
    active[warp.active_lanes()] = True
    still: list[_Copy] = []
    for copy in queue.open:
        ended = active[copy.lanes] & (copy.group < queue.closed[copy.lanes] - pending)
        left = _land(warp, copy, ended) if ended.any() else copy
        if len(left.lanes):
            still.append(left)
    queue.open = still


def _token(wave: Wave, slot: int) -> None:
    wave.regs[slot] = cast("Value", np.int32(0))  # a token holds nothing


def _make_commit(ins: Ins, dsts: Slots, args: Slots) -> Step:
    def run(wave: Wave) -> None:
        warp = warp_of(wave)
        _queue(warp).closed[warp.active_lanes()] += 1
        _token(wave, dsts[0])

    return run


# Boxes of tensor maps


def _box(blob: Blob, tensor: TensorMap, corner: list[int]) -> tuple[Ints, Bools]:
    """Where the box's elements lie in the buffer, innermost axis first, and which are inside the
    tensor.
    """
    at, inside = np.zeros(1, np.int64), np.ones(1, np.bool_)
    for edge, start, extent, stride in zip(
        blob.box, corner, tensor.dims, tensor.strides, strict=True
    ):
        where = np.arange(start, start + edge)
        at = (where[:, None] * stride + at).reshape(-1)
        inside = (((where >= 0) & (where < extent))[:, None] & inside).reshape(-1)
    return at, inside


def _place_box(warp: Warp, space: Space, blob: Blob, index: int, ins: Ins) -> Ints:
    """Where the box's elements lie in workgroup memory."""
    total = int(np.prod(blob.box))
    if not 0 <= index <= space.elems - total:
        what = f"{space.name} has {space.elems} elements, a box of {total} at {index}"
        warp.fail("out-of-bounds", what, ins)
    size = ELEMENT_BYTES[blob.dtype]
    align = SWIZZLE_NBYTES if blob.swizzle else 16
    if index * size % align:
        warp.fail("misaligned", f"{space.name}[{index}] is not at a multiple of {align} bytes", ins)
    return index + swizzle(blob.swizzle, np.arange(total), blob.box[0], size)


def _bounded(warp: Warp, space: Space, at: Ints, inside: Bools, ins: Ins) -> None:
    used = at[inside]
    if used.size and (used.min() < 0 or used.max() >= space.elems):
        what = f"{space.name} has {space.elems} elements, the tensor map reaches {int(used.max())}"
        warp.fail("out-of-bounds", what, ins)


def _corners(warp: Warp, args: Slots) -> list[tuple[int, list[int]]]:
    """Each active lane with its numbers."""
    whole = [np.asarray(warp.spread(warp.regs[a]), np.int64) for a in args]
    return [(int(lane), [int(w[lane]) for w in whole]) for lane in warp.active_lanes()]


def _make_tma_load(ins: Ins, dsts: Slots, args: Slots) -> Step:
    name, dst, mem = str(ins.attr("blob")), str(ins.attr("dst")), str(ins.attr("mem"))

    def run(wave: Wave) -> None:
        warp = warp_of(wave)
        for lane, numbers in _corners(warp, args):
            _start_load(warp, (name, dst, mem), lane, numbers, ins)

    return run


def _start_load(
    warp: Warp, names: tuple[str, str, str], lane: int, numbers: list[int], ins: Ins
) -> None:
    """Begins one lane's box; it lands when its mbarrier lacks nothing else."""
    team = warp.team
    blob, tensor = team.blobs[names[0]]
    into, out_of = team.spaces[names[1]], team.spaces[tensor.buffer]
    to = _place_box(warp, into, blob, numbers[0], ins)
    at, inside = _box(blob, tensor, numbers[2:])
    _bounded(warp, out_of, at, inside, ins)
    tracker, thread = team.tracker(names[1]), int(warp.place.lane[lane])
    tracker.begin_write(warp, to, np.full(to.shape, lane), ins)
    bar = mbarrier(warp, names[2], numbers[1], ins)

    def land() -> tuple[int, Ints]:
        values = out_of.get(np.where(inside, at, 0))
        into.put(to, np.where(inside, values, np.zeros((), values.dtype)))
        if into.written is not None:
            into.written[to] = True
        tracker.end_write(warp, to, np.full(to.shape, thread), is_async_proxy=True)
        out_of.loads += int(inside.sum())
        into.stores += to.size
        nbytes = to.size * ELEMENT_BYTES[blob.dtype]
        return nbytes, team.clocks.release(warp.number, np.asarray([thread]))

    bar.copies.append(land)


@dataclass(frozen=True, slots=True)
class _Store:
    """One tma_store that hasn't landed, by one lane."""

    lane: int
    group: int
    into: Space
    out_of: Space
    at: Ints
    inside: Bools
    source: Ints


class StoreQueue:
    """A wave's bulk stores."""

    def __init__(self, lanes: int) -> None:
        self.closed = np.zeros(lanes, np.int64)
        self.open: list[_Store] = []


def _stores(warp: Warp) -> StoreQueue:
    found = warp.team.objects.setdefault(f"stores {warp.number}", StoreQueue(warp.lanes))
    assert isinstance(found, StoreQueue)
    return found


def _make_tma_store(ins: Ins, dsts: Slots, args: Slots) -> Step:
    name, mem = str(ins.attr("blob")), str(ins.attr("mem"))

    def run(wave: Wave) -> None:
        warp = warp_of(wave)
        team, queue = warp.team, _stores(warp)
        blob, tensor = team.blobs[name]
        out_of, into = team.spaces[mem], team.spaces[tensor.buffer]
        for lane, numbers in _corners(warp, args):
            source = _place_box(warp, out_of, blob, numbers[0], ins)
            at, inside = _box(blob, tensor, numbers[1:])
            _bounded(warp, into, at, inside, ins)
            team.tracker(mem).begin_read(warp, source, ins, lane)
            out_of.need_written(warp, source, ins)
            group = int(queue.closed[lane])
            queue.open.append(_Store(lane, group, into, out_of, at, inside, source))
            queue.closed[lane] += 1
        _token(wave, dsts[0])

    return run


def _end_stores(warp: Warp, pending: int) -> None:
    queue, lanes = _stores(warp), set(warp.active_lanes().tolist())
    still: list[_Store] = []
    for s in queue.open:
        if s.lane not in lanes or s.group >= queue.closed[s.lane] - pending:
            still.append(s)
            continue
        target = s.at[s.inside]
        s.into.put(target, s.out_of.get(s.source)[s.inside])
        if s.into.written is not None:
            s.into.written[target] = True
        s.into.stores += target.size
        s.out_of.loads += s.source.size
        warp.team.tracker(s.out_of.name).end_read(warp, s.source)
    queue.open = still


def open_stores(warp: Warp) -> int:
    """Bulk stores that nothing has waited for."""
    return len(_stores(warp).open)


def _make_wait(ins: Ins, dsts: Slots, args: Slots) -> Step:
    token, pending = ins.args[0].type, cast("int", ins.attr("pending"))  # verified
    assert isinstance(token, Token)
    ends = {"copy": _end_copies, "bulk": _end_stores, "wgmma": end_products}

    def run(wave: Wave) -> None:
        ends[token.kind](warp_of(wave), pending)

    return run


COPIES: dict[str, Maker] = {
    "cp_async": _make_cp_async,
    "async_commit": _make_commit,
    "tma_load": _make_tma_load,
    "tma_store": _make_tma_store,
    "wait": _make_wait,
}
