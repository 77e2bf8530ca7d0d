"""Schedules of matmul regions: those that stream and those of matrix units where a device has them,
else `gemv` straight from memory for few rows, `gemm` through workgroup memory for many."""

from __future__ import annotations

from poot.errors import CapabilityError
from poot.ir.contiguity import is_summed_axis_in_a_row
from poot.ir.dtypes import is_integer
from poot.ir.graph import Eqn, Graph
from poot.limits import DeviceLimits
from poot.planner.matrix import choose_matrix, family_of
from poot.planner.powers import power_of_two_below
from poot.planner.request import Schedule
from poot.planner.stream import choose_stream, why_not

# Rows up to which a product is read straight from memory on a GPU.
FEW_ROWS = 8
# Terms a lane takes together: as many as share a scale in a quantised weight, else two loads of
# four.
QUANTISED_RUN = 32
RUN = 8


def _products(body: Graph) -> list[Eqn]:
    found = [e for e in body.eqns if e.op == "matmul"]
    if not found:
        raise CapabilityError("a step anchored by matmul has none")
    return found


def _is_quantised(body: Graph, product: Eqn) -> bool:
    """The right operand is made from integers."""
    makers = {v.id: e for e in body.eqns for v in e.outs}
    stack, seen = [product.ins[1]], set[int]()
    while stack:
        v = stack.pop()
        if v.id in seen or v.id not in makers:
            continue
        seen.add(v.id)
        eqn = makers[v.id]
        if eqn.op == "cast" and is_integer(eqn.ins[0].type.dtype):
            return True
        stack.extend(eqn.ins)
    return False


def choose_matmul(
    body: Graph, updates: tuple[tuple[int, int], ...], limits: DeviceLimits
) -> tuple[Schedule, str]:
    """By the rows of the products, and how the right operand lies in memory."""
    products = _products(body)
    rows, cols = products[0].out.type.shape[-2:]
    depth = products[0].ins[0].type.shape[-1]
    makers = {v.id: e for e in body.eqns for v in e.outs}
    adjacent = is_summed_axis_in_a_row(makers, products[0])
    if not why_not(body, products, limits):
        schedule = choose_stream(body, products, limits)
        return schedule, f"{rows} x {depth} by {depth} x {cols}, weights read once in a stream"
    found = choose_matrix(body, products, updates, limits)
    if not isinstance(found, str):
        return found
    run = QUANTISED_RUN if _is_quantised(body, products[0]) else RUN
    if limits.is_software:
        params = _software_gemv(rows, cols, run, adjacent, limits)
    elif rows <= FEW_ROWS:
        params = _gemv(body, rows, depth, run, adjacent, limits)
    else:
        params = _gemm(body, rows, limits)
    params["adjacent"] = int(adjacent)
    name = "gemm" if "tile_m" in params else "gemv"
    lies = "summed axis" if adjacent else "columns"
    reason = f"{rows} x {depth} by {depth} x {cols}, {lies} of the right operand in a row"
    if family_of(limits):
        reason = f"{reason}; {found}"
    return Schedule(name, tuple(sorted(params.items()))), reason


def _software_gemv(
    rows: int, cols: int, run: int, adjacent: bool, limits: DeviceLimits
) -> dict[str, int]:
    """One lane a column: a CPU gathers each lane's element anyway, and no lane waits. Four columns
    a lane share the left operand's loads, where groups are left for the cores, but not where a
    single row reads columns apart (measured on lavapipe, CPU time of one product)."""
    threads = min(32, power_of_two_below(limits.threads))
    wide = 1
    while wide < 4 and cols >= 4 * threads * wide and (rows > 1 or adjacent):
        wide *= 2
    return {"cols": wide, "lanes": 1, "rows": min(8, rows), "threads": threads, "unroll": run}


def _gemv(
    body: Graph, rows: int, depth: int, run: int, adjacent: bool, limits: DeviceLimits
) -> dict[str, int]:
    """Lanes share each sum: many where neighbouring lanes read neighbouring terms, a few to split
    long sums."""
    threads = min(128, power_of_two_below(limits.threads))
    lanes = min(32 if adjacent else 4, threads)
    while lanes > 1 and lanes * run > depth:
        lanes //= 2
    tall, count = min(4, rows), len(_products(body))
    while tall > 1 and threads * tall * count * 4 > limits.workgroup_nbytes // 2:
        tall -= 1
    return {"cols": 1, "lanes": lanes, "rows": tall, "threads": threads, "unroll": run}


def _gemm(body: Graph, rows: int, limits: DeviceLimits) -> dict[str, int]:
    """Square tiles of 64, fewer rows where there are no more, fewer terms where workgroup memory
    is short."""
    lane_m = lane_n = 4
    tile_m = 64 if rows > 32 else 32 if rows > 16 else 16
    tile_n, tile_k = 64, 16
    while (tile_m // lane_m) * (tile_n // lane_n) > limits.threads:
        tile_n //= 2
    count = len(_products(body))
    folds = sum(e.op == "reduce" for e in body.eqns)
    lanes = (tile_m // lane_m) * (tile_n // lane_n)

    def nbytes(tile_k: int) -> int:
        return ((tile_m + count * tile_n) * tile_k + folds * tile_m + lanes) * 4

    while tile_k > 1 and nbytes(tile_k) > limits.workgroup_nbytes:
        tile_k //= 2
    return {
        "lane_m": lane_m, "lane_n": lane_n, "tile_k": tile_k, "tile_m": tile_m, "tile_n": tile_n,
    }  # fmt: skip
