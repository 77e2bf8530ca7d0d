"""Asynchronous products of a warpgroup. Each wave makes its own 16 rows; the product is taken, and
its accumulator can be read, only at the wait that ends it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import numpy as np

from poot.codegen.kir.frags import swizzle
from poot.codegen.kir.nodes import Frag, Ins
from poot.codegen.kir.sim.barriers import uniform_int, warp_of
from poot.codegen.kir.sim.matrix import frag_of, layout, whole
from poot.codegen.kir.sim.memory import Space
from poot.codegen.kir.sim.poison import Poison
from poot.codegen.kir.sim.program import Maker, Step
from poot.codegen.kir.sim.team import Warp
from poot.codegen.kir.sim.values import F32
from poot.codegen.kir.sim.wave import Ints, Value, Wave

Slots = tuple[int, ...]
_PANEL = 64  # columns of 16 bits in 128 bytes
_ROWS = 16  # of a warpgroup's 64, in each wave
_ALIGN = 512  # elements of 16 bits in the swizzle's pattern


@dataclass(frozen=True, slots=True)
class _Product:
    """One wgmma that hasn't ended: what it reads of workgroup memory, [rows, k] or [k, columns] of
    flat elements, or the rows of its register operand.
    """

    slot: int
    acc: Frag
    group: int
    zero: bool
    left: Value | None
    tile_a: tuple[Space, Ints] | None
    tile_b: tuple[Space, Ints]
    first: int


class ProductQueue:
    """A wave's products: groups closed, those that haven't ended, and what each accumulator held
    before them.
    """

    def __init__(self) -> None:
        self.closed = 0
        self.open: list[_Product] = []
        self.held: dict[int, Value] = {}


def _queue(warp: Warp) -> ProductQueue:
    found = warp.team.objects.setdefault(f"products {warp.number}", ProductQueue())
    assert isinstance(found, ProductQueue)
    return found


def _tile(
    warp: Warp, name: str, base: int, rows: Ints, columns: int, stride: int, ins: Ins
) -> Ints:
    """Flat elements [rows, columns] of a tile in panels of 64 columns, swizzle 128B."""
    space = warp.team.spaces[name]
    if base % _ALIGN:
        warp.fail("misaligned", f"{name}[{base}] is not at a multiple of 1024 bytes", ins)
    c = np.arange(columns)[None, :]
    inside = rows[:, None] * _PANEL + c % _PANEL
    at = base + c // _PANEL * stride + swizzle("128B", inside, _PANEL, 2)
    if at.min() < 0 or at.max() >= space.elems:
        what = f"{name} has {space.elems} elements, the tile reaches {int(at.max())}"
        warp.fail("out-of-bounds", what, ins)
    warp.team.tracker(name).begin_read(warp, at.reshape(-1), ins)
    space.need_written(warp, at, ins)
    return at


def _begin(warp: Warp, ins: Ins, dst: int, args: Slots) -> None:
    """Checks the operands and puts the accumulator out of reach."""
    warp.whole(ins)
    acc, queue = frag_of(ins.dsts[0].type), _queue(warp)
    k, trans = cast("int", ins.attr("k")), bool(ins.attr("trans_b"))  # verified
    first = int(warp.place.lane[0]) % 128 // 32 * _ROWS
    left: Value | None = None
    tile_a: tuple[Space, Ints] | None = None
    if isinstance(ins.args[0].type, Frag):
        left = _own_rows(warp, ins.args[0].type, warp.regs[args[0]])
    else:
        name, base = str(ins.attr("a")), uniform_int(warp, warp.regs[args[0]], ins)
        stride = cast("int", ins.attr("stride_a") or 0)  # verified
        at = _tile(warp, name, base, np.arange(acc.m), k, stride, ins)
        tile_a = warp.team.spaces[name], at
    name, base = str(ins.attr("b")), uniform_int(warp, warp.regs[args[1]], ins)
    rows, columns = (k, acc.n) if trans else (acc.n, k)
    stride = cast("int", ins.attr("stride_b") or 0)  # verified
    at = _tile(warp, name, base, np.arange(rows), columns, stride, ins)
    tile_b = warp.team.spaces[name], at if trans else at.T
    if not any(p.slot == dst for p in queue.open):
        queue.held[dst] = warp.regs[dst]
        poison = Poison("in-flight", f"accumulator {ins.dsts[0].name} is read before its wait")
        warp.regs[dst] = cast("Value", poison)  # it stands for a value and fails when used
    product = _Product(dst, acc, queue.closed, bool(ins.attr("zero")), left, tile_a, tile_b, first)
    queue.open.append(product)


def _own_rows(warp: Warp, frag: Frag, value: Value) -> Value:
    """This wave's 16 rows of an A fragment, in f32."""
    r, c = layout(warp, frag)
    out = np.zeros((_ROWS, frag.n), F32)
    out[r % _ROWS, c] = whole(warp, frag, value).astype(F32)
    return out


def _multiply(warp: Warp, product: _Product, held: Value) -> Value:
    """The accumulator after a product."""
    left = product.left
    if product.tile_a is not None:
        space, at = product.tile_a
        own = at[product.first : product.first + _ROWS]
        left = space.get(own).astype(F32)
    assert left is not None
    space, at = product.tile_b
    r, c = layout(warp, product.acc)
    rows = np.matmul(left, space.get(at).astype(F32))[r % _ROWS, c]
    return rows if product.zero else np.add(whole(warp, product.acc, held), rows)


def end_products(warp: Warp, pending: int) -> None:
    """Takes the products of all groups but the latest `pending`; accumulators with none left can be
    read.
    """
    queue = _queue(warp)
    limit = queue.closed - pending
    for product in [p for p in queue.open if p.group < limit]:
        held = queue.held[product.slot]
        queue.held[product.slot] = _multiply(warp, product, held)
        for tile in (product.tile_a, product.tile_b):
            if tile is not None:
                warp.team.tracker(tile[0].name).end_read(warp, tile[1].reshape(-1))
    queue.open = [p for p in queue.open if p.group >= limit]
    for slot in [s for s in queue.held if all(p.slot != s for p in queue.open)]:
        warp.regs[slot] = queue.held.pop(slot)


def _make_wgmma(ins: Ins, dsts: Slots, args: Slots) -> Step:
    def run(wave: Wave) -> None:
        _begin(warp_of(wave), ins, dsts[0], args)

    return run


def _make_commit(ins: Ins, dsts: Slots, args: Slots) -> Step:
    def run(wave: Wave) -> None:
        warp = warp_of(wave)
        warp.whole(ins)
        _queue(warp).closed += 1
        wave.regs[dsts[0]] = cast("Value", np.int32(0))  # a token holds nothing

    return run


PRODUCTS: dict[str, Maker] = {"wgmma": _make_wgmma, "wgmma_commit": _make_commit}
