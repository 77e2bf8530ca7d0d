"""Products for matrix units, small enough to simulate, on devices of each family of fragments."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from poot.codegen.gen.matmul.matrix.shape import Form as Shape
from poot.codegen.gen.matmul.parts import products_of
from poot.ir.graph import Graph
from poot.limits import DeviceLimits, profile
from poot.planner.matrix import left_scratch
from poot.planner.request import Request, Schedule
from tests.support.launch import assert_close, inputs_of, request_of, run_request, wanted

H200 = profile("h200")
# A card whose lanes copy and whose subgroups multiply: no warpgroups, no tensor maps.
AMPERE = replace(
    H200, name="ampere", arch="sm_80", has_tensor_maps=False, workgroup_nbytes=166912,
    compute_units=108,
)  # fmt: skip
FAMILIES = {"mma": AMPERE, "mfma": profile("mi300x"), "wmma": profile("rdna3")}


def schedule(name: str, **params: int) -> Schedule:
    return Schedule(name, tuple(sorted(params.items())))


RING = schedule("matrix_ring", groups=2, section=1, stages=2, swapped=0, tile_m=64, tile_n=64)
SWAPPED = schedule("matrix_ring", groups=2, section=1, stages=3, swapped=1, tile_m=64, tile_n=16)
FRAGMENTS = schedule("matrix", section=1, stages=2, tile_m=32, tile_n=128, warps_m=2, warps_n=2)


@dataclass(frozen=True, slots=True)
class Form:
    """x [rows, depth] by matrices [columns, depth] (or [depth, columns], `is_turned`), of `weight`
    widened to f32 where x is f32; two products that one output needs, where `is_double`; x made
    by the step itself, where `is_made`."""

    rows: int
    depth: int
    columns: int
    x: str = "bf16"
    weight: str = "bf16"
    is_turned: bool = False
    is_double: bool = False
    is_made: bool = False

    def text(self) -> str:
        x = f"{self.x}[{self.rows},{self.depth}]"
        out = f"{self.x}[{self.rows},{self.columns}]"
        lies = (self.depth, self.columns) if self.is_turned else (self.columns, self.depth)
        w = f"{self.weight}[{lies[0]},{lies[1]}]"
        lines = [f"in v0: {x}", *(f"in v{n + 1}: {w}" for n in range(1 + self.is_double))]
        lines.append(f"v3: {x} = {'neg' if self.is_made else 'abs'}(v0)")
        left, products = "v3" if self.is_made else "v0", list[str]()
        if not self.is_made:
            lines.pop()
        for n in range(1 + self.is_double):
            at, now = 10 * (n + 1), f"v{n + 1}"
            if not self.is_turned:
                swapped = f"{self.weight}[{self.depth},{self.columns}]"
                lines.append(f"v{at}: {swapped} = transpose({now}) perm=(1, 0)")
                now = f"v{at}"
            if self.weight != self.x:
                wide = f"{self.x}[{self.depth},{self.columns}]"
                lines.append(f"v{at + 1}: {wide} = cast({now}) dtype={self.x}")
                now = f"v{at + 1}"
            lines.append(f"v{at + 2}: {out} = matmul({left}, {now})")
            products.append(f"v{at + 2}")
        if self.is_double:
            lines.append(f"v40: {out} = mul({products[0]}, {products[1]})")
            products = ["v40"]
        return "\n".join([*lines, f"out {products[0]}"])


def request_for(
    body: str | Graph, limits: DeviceLimits, given: Schedule | None = None,
    updates: tuple[tuple[int, int], ...] = (),
) -> Request:  # fmt: skip
    """A step's request; with a schedule other than the chosen one, also the scratch that it has."""
    request = request_of(body, "matmul", updates, limits, given)
    if given is None:
        return request
    return replace(request, scratch=left_scratch(request.body))


def check(
    body: str | Graph, limits: DeviceLimits, given: Schedule | None = None, within: float = 5e-5,
    updates: tuple[tuple[int, int], ...] = (), ins: Sequence[np.ndarray] | None = None,
) -> Request:  # fmt: skip
    """The simulator against the oracle."""
    request = request_for(body, limits, given, updates)
    feed = inputs_of(request) if ins is None else list(ins)
    for got, want in zip(run_request(request, feed, limits), wanted(request, feed), strict=True):
        assert_close(got, want, within)
    return request


def shape_of(request: Request) -> Shape:
    return Shape.of(request, products_of(request))
