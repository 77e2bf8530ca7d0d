"""Workgroup counts: folded to two grid axes where they pass the first, and the group's number read
back."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

from poot.codegen.kir.build import KernelBuilder, Val
from poot.errors import GridLimit
from poot.limits import DeviceLimits

Grid = tuple[int, int, int]


def fold_grid(groups: int, limits: DeviceLimits) -> Grid:
    """The most even (x, y, 1) with x * y >= groups. Raises GridLimit where no fold fits the
    device."""
    most_x, most_y, _ = limits.grid
    rows = -(-groups // most_x)
    if rows > most_y:
        raise GridLimit(
            f"a launch of {groups} workgroups fits no grid of {most_x} x {most_y} on "
            f"{limits.name}; use smaller batches"
        )
    return -(-groups // rows), rows, 1


@contextmanager
def each_group(k: KernelBuilder, groups: int, limits: DeviceLimits) -> Generator[Val]:
    """The group's number, 0 .. groups - 1. A group of the fold's last row that has no work leaves
    whole, before any barrier."""
    x, y, _ = fold_grid(groups, limits)
    number = k.group_id(0)
    if y > 1:
        number = k.group_id(1) * x + number
    if x * y == groups:
        yield number
    else:
        with k.if_(number < groups):
            yield number
