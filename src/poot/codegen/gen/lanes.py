"""Lanes of one subgroup at work together: tiles read with lanes along one axis and turned to the
other, parts of the lanes, and what one lane does for all."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager

from poot.codegen.kir.build import KernelBuilder, Val


def turned(k: KernelBuilder, rows: list[Val]) -> list[Val]:
    """Row i of the result holds in lane j what row j held in lane i. As many rows as the subgroup
    has lanes, a power of two: in each round, pairs of rows swap the halves that are not theirs."""
    lane = k.lane()
    step = 1
    while step < len(rows):
        is_low = (lane & step).eq(0)
        swapped = list(rows)
        for i in range(len(rows)):
            if i & step:
                continue
            low, high = rows[i], rows[i + step]
            crossed = k.op("shuffle_xor", k.select(is_low, high, low), mask=step)
            swapped[i] = k.select(is_low, low, crossed)
            swapped[i + step] = k.select(is_low, crossed, high)
        rows, step = swapped, step * 2
    return rows


def across(k: KernelBuilder, rows: list[Val], join: Callable[[Val, Val], Val]) -> Val:
    """Lane j of the result holds row j's lanes, joined. As many rows as the subgroup has lanes, a
    power of two: in each round, pairs of rows become one that holds half of each."""
    lane, step = k.lane(), 1
    while len(rows) > 1:
        is_low = (lane & step).eq(0)
        halves: list[Val] = []
        for low, high in zip(rows[::2], rows[1::2], strict=True):
            crossed = k.op("shuffle_xor", k.select(is_low, high, low), mask=step)
            halves.append(join(k.select(is_low, low, high), crossed))
        rows, step = halves, step * 2
    return rows[0]


def part(k: KernelBuilder, count: int, lanes: int, make: Callable[[], Val]) -> Val:
    """make() in the first `count` lanes, 0 in the others, where nothing is read."""
    if count == lanes:
        return make()
    value = k.var(k.lit(0.0), name="part")
    with k.if_(k.lane() < count):
        k.set(value, make())
    return k.copy(value)


@contextmanager
def once(k: KernelBuilder) -> Generator[None]:
    """Runs the body in the first lane alone: where all lanes hold the same, one stores it."""
    with k.if_(k.lane().eq(0)):
        yield
