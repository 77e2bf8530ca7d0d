"""Schedule "grouped_split": a decode on any GPU with subgroups, keys and values in registers."""

from __future__ import annotations

from poot.ir.graph import Eqn, Graph
from poot.limits import DeviceLimits
from poot.planner.codes import coded_pair
from poot.planner.operands import keys_of, operands_of
from poot.planner.request import Schedule

_WARPS = 4
_MOST_HEADS = 8
# Registers that a lane's queries, sums and rows may take.
_MOST_FLOATS = 160
_GROUPS_A_UNIT = 4  # groups for each compute unit
_LEAST_CHUNK = 64
_MOST_SPLITS = 64
_LANES = 64  # of the launch that merges


def _cuts(repeat: int, most: int) -> int:
    """Even sets of query heads, of at most so many."""
    return next(n for n in range(1, repeat + 1) if repeat % n == 0 and repeat // n <= most)


def grouped_split(body: Graph, limits: DeviceLimits) -> Schedule | str:
    """The schedule of a decode, or why it is not taken."""
    (eqn,) = (e for e in body.eqns if e.op == "attention")
    if limits.target not in ("spirv", "hip", "ptx") or limits.subgroup < 4 or limits.is_software:
        return f"{limits.name} has no subgroups to count on"
    return split_numbers(body, eqn, limits)


def split_numbers(body: Graph, eqn: Eqn, limits: DeviceLimits) -> Schedule | str:
    """The schedule's numbers on a device with subgroups, or why there are none."""
    at = operands_of(eqn)
    q, k, v = at["q"].type, at["k"].type, at["v"].type
    inputs = {i.var.id for i in body.inputs}
    if q.shape[2] != 1 or "k_shared" in at:
        return "several query rows" if q.shape[2] != 1 else "grouped_split has no k_shared"
    codes = coded_pair(body, at)
    if codes is None and (at["k"].id not in inputs or at["v"].id not in inputs):
        return "keys or values are computed, not read"
    if k.dtype not in ("f32", "f16", "bf16") or v.dtype != k.dtype or v.shape[-1] != q.shape[3]:
        return f"grouped_split has no keys of {k} with values of {v}"
    piece = 4 if k.dtype == "f32" and codes is None else 8
    width = q.shape[3]
    if width % piece:
        return f"rows of {width} are not whole vectors"
    across = max(n for n in (1, 2, 4, 8, 16, 32, 64) if n <= limits.subgroup
                 and (width // piece) % n == 0)  # fmt: skip
    repeat = q.shape[1] // k.shape[1]
    each = width // across
    cuts = _cuts(repeat, min(_MOST_HEADS, across, max(1, _MOST_FLOATS // (2 * each) - 1)))
    heads = 1 << (repeat // cuts - 1).bit_length()
    left = max(_MOST_FLOATS - 2 * heads * each, 4 * each)
    turns = max(n for n in (1, 2, 4) if n == 1 or 2 * n * each <= left)
    batch, units = q.shape[0], q.shape[0] * k.shape[1] * cuts
    keys = keys_of(at)
    wanted = -(-limits.compute_units * _GROUPS_A_UNIT // max(units, 1))
    splits = max(1, min(_MOST_SPLITS, wanted, keys // _LEAST_CHUNK))
    params = {
        "subgroup": limits.subgroup, "warps": _WARPS, "across": across, "turns": turns,
        "cuts": cuts, "splits": splits, "lanes": _LANES,
    }  # fmt: skip
    nbytes = 4 * _WARPS * (repeat // cuts * (width + 2) + limits.subgroup // across * turns * heads)
    states = batch * q.shape[1] * splits * (width + 2) * 4
    if nbytes > limits.workgroup_nbytes or states > min(
        limits.buffer_nbytes, limits.binding_nbytes
    ):
        return f"{nbytes} bytes of workgroup memory, {states} of partial states"
    return Schedule("grouped_split", tuple(sorted(params.items())))
