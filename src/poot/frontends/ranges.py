"""The ranges that a caller declares for the integer inputs of a foreign program."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import cast

from poot.errors import TraceError
from poot.frontends.foreign import Foreign, Given
from poot.ir.graph import Slot
from poot.ops.kinds import wholes
from poot.trace import slot


def declared(
    foreign: Foreign, ranges: Mapping[str, tuple[int, int]] | None, frontend: str
) -> Foreign:
    """The program with the caller's ranges (lo, hi), hi excluded, on its slots; those without axes,
    or with one, become positions. Raises TraceError on what is no dict of ranges, and on a name
    that is no integer slot."""
    found = _read(ranges, frontend)
    known = {
        g.name for g in foreign.givens if isinstance(g.storage, Slot) and g.type.dtype == "i32"
    }
    strange = sorted(found.keys() - known)
    if strange:
        what = (
            f"{frontend} needs ranges of integer inputs, {', '.join(sorted(known)) or 'none here'}"
        )
        raise TraceError(f"{what}: got {', '.join(strange)}")
    return replace(foreign, givens=tuple(_ranged(g, found.get(g.name)) for g in foreign.givens))


def _read(ranges: object, frontend: str) -> dict[str, tuple[int, int]]:
    """What the caller gave, as (lo, hi) by name."""
    if ranges is None:
        return {}
    if not isinstance(ranges, Mapping):
        kind = type(ranges).__name__
        raise TraceError(f"{frontend} needs ranges as a dict of (lo, hi) by names: got {kind}")
    found: dict[str, tuple[int, int]] = {}
    for name, limits in cast("Mapping[object, object]", ranges).items():
        if not isinstance(name, str):
            raise TraceError(f"{frontend} needs ranges by names, which are texts: got {name!r}")
        pair = wholes(limits)
        if pair is None or len(pair) != 2:
            raise TraceError(f"{frontend} needs whole (lo, hi) for {name}: got {limits!r}")
        found[name] = (pair[0], pair[1])
    return found


def _ranged(given: Given, limits: tuple[int, int] | None) -> Given:
    if limits is None:
        return given
    kind = "pos" if len(given.type.shape) < 2 else "user"
    spec = slot(given.type.shape, given.type.dtype, kind=kind, range=limits)
    return replace(given, storage=spec.storage)
