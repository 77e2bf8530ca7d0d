"""What a launch asks of its device besides a grid and buffers."""

from __future__ import annotations

from dataclasses import dataclass

ONE = (1, 1, 1)


@dataclass(frozen=True, slots=True)
class Attributes:
    """`overlap`: the launch may begin before the one before it is done. Its kernel waits by itself
    (`griddepcontrol`), in every group, before it reads what that one wrote and before it stores;
    a device without such launches runs them one after the other.

    `cluster`: groups in steps of this many along each axis are resident together, and reach one
    another's workgroup memory; the grid is a multiple of it.

    `is_resident`: all groups have to be resident at once, because they wait for one another. A
    grid of more groups than that is refused when the list is prepared."""

    overlap: bool = False
    cluster: tuple[int, int, int] = ONE
    is_resident: bool = False


PLAIN = Attributes()


@dataclass(frozen=True, slots=True)
class TensorView:
    """A tensor in a kernel's buffer, for one of its tensor maps: extents and strides in elements,
    innermost axis first, the innermost stride 1. Box, dtype and swizzle are the kernel's."""

    dims: tuple[int, ...]
    strides: tuple[int, ...]
