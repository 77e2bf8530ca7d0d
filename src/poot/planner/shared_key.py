"""Schedule "shared_key": how many query heads share one reading of a split key's shared part."""

from __future__ import annotations

from dataclasses import dataclass

from poot.ir.graph import Eqn, Var
from poot.limits import DeviceLimits
from poot.planner.operands import keys_of, operands_of
from poot.planner.powers import power_of_two_below

# Keys of a block, and lanes of a group at the least where the device has them and at the most.
_BLOCK = 16
_LEAST_LANES, _MOST_LANES = 64, 128
_GROUPS_A_UNIT = 4  # groups for each compute unit of a device that is no software
# Splits of a decode at the most, and keys of each at the least.
MOST_SPLITS, LEAST_CHUNK = 16, 128
# The generator's too: query heads to a load of values, keys of a trip, and floats of a load.
TOGETHER, STEP, VECTOR = 4, 4, 4


@dataclass(frozen=True, slots=True)
class SharedKey:
    """The schedule's numbers without splits: lanes of a group, its query heads, keys of a block,
    whether queries are staged, groups before splits, and the trips that a lane takes through loops
    for all keys."""

    lanes: int
    heads: int
    block: int
    stage_q: int
    groups: int
    trips: int


def shared_key(eqn: Eqn, limits: DeviceLimits) -> SharedKey | None:
    """The most query heads whose states fit workgroup memory beside a block's shared parts, and
    that leave groups enough for the compute units, or half as many as the heads alone would give:
    whole key heads, or an even part of one. None where the key has no shared part, and where not
    even two heads fit or there is one."""
    at = operands_of(eqn)
    if "k_shared" not in at:
        return None
    batch, heads, rows, _ = at["q"].type.shape
    repeat, alone = heads // at["k"].type.shape[1], batch * heads * rows
    splits = max(1, min(MOST_SPLITS, keys_of(at) // LEAST_CHUNK)) if rows == 1 else 1
    units = limits.compute_units * (1 if limits.is_software else _GROUPS_A_UNIT)
    wanted = min(units, alone * splits // 2)
    fewest: int | None = None
    for many in range(heads, 1, -1):
        if heads % many or (many % repeat and repeat % many):
            continue
        if _floats(at, many) * 4 <= limits.workgroup_nbytes:
            fewest = many
            if alone // many * splits >= wanted:
                break
    return None if fewest is None else _numbers(at, fewest, alone // fewest, limits)


def _numbers(at: dict[str, Var], heads: int, groups: int, limits: DeviceLimits) -> SharedKey:
    q = at["q"].type
    lanes = max(_LEAST_LANES, min(_MOST_LANES, heads * _BLOCK))
    lanes = power_of_two_below(min(lanes, limits.threads))
    nbytes = (_floats(at, heads) + heads * whole(q.shape[3])) * 4
    together = min(heads, q.shape[1] // at["k"].type.shape[1])
    trips = _trips(at, heads, together, lanes)
    return SharedKey(lanes, heads, _BLOCK, int(nbytes <= limits.workgroup_nbytes), groups, trips)


def whole(n: int) -> int:
    """Filled up to whole vectors."""
    return -(-n // VECTOR) * VECTOR


def _floats(at: dict[str, Var], heads: int) -> int:
    """Words of workgroup memory, without queries."""
    value_width, shared = at["v"].type.shape[-1], at["k_shared"].type.shape[-1]
    words = heads * (value_width + _BLOCK + 3) + (whole(shared) + VECTOR) * _BLOCK
    return words + _BLOCK * ("read" in at) + 4 * 8  # arrays start at 16 bytes


def _trips(at: dict[str, Var], heads: int, together: int, lanes: int) -> int:
    width, value_width = at["q"].type.shape[-1], at["v"].type.shape[-1]

    def turns(items: int) -> int:
        return -(-items // lanes)

    scores, folds = turns(heads * _BLOCK), turns(heads)
    channels = value_width if value_width % VECTOR else value_width // VECTOR
    values = turns(heads // together * channels) * -(-together // TOGETHER)
    inner = _BLOCK // STEP + STEP  # whole steps, and at the last block the rest
    block = (
        3 + turns(_BLOCK * at["k_shared"].type.shape[-1]) + scores * (6 + width // STEP)
        + 2 * folds * (1 + inner) + values * (1 + inner)
    )  # fmt: skip
    around = turns(heads * value_width) + turns(heads * width) + heads * (2 + turns(value_width))
    # Twice, for the last look at each loop's end counts too.
    return 2 * (-(-keys_of(at) // _BLOCK) * block + around)
