"""Limits for what is given as integers of 64 bits, so that more of what is made of it is proved.

What a caller gives may be any number of 32 bits, and then hardly a sum is proved to stay in 32. So
each call that isn't proved asks the givens that it is made of for less, which is checked when they
are given.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import cast

import numpy as np

from poot.frontends.foreign import Call, Foreign, Given, Ref, Row
from poot.frontends.lower import Lowering, Miss
from poot.ir.dtypes import is_integer
from poot.ir.graph import Slot, State
from poot.ir.ranges import Known
from poot.ops.record import recording

# Limits that are tried, in bits: token ids and positions fit the first, flags and counts the last.
LEVELS = (24, 15)


@dataclass(frozen=True, slots=True)
class Tried:
    """A program with limits, the calls that can't be done even so, what is known of each value, the
    results that were taken as constants, and the ids of those that poot doesn't hold."""

    foreign: Foreign
    misses: tuple[Miss, ...]
    intervals: Mapping[str, Known]
    known: Mapping[str, np.ndarray]
    unheld: frozenset[str]


def narrowed(foreign: Foreign, rows: Mapping[str, Row]) -> Tried:
    """The program with the widest limits, on slots and States without a range and on results of
    calls that can't be done, by which the most of its calls are proved."""
    tried = _tried(foreign, rows)
    given_up: set[int] = set()
    while (at := _first_wide(tried, given_up)) is not None:
        better = _narrower(tried, at, rows)
        given_up.add(at)
        tried = better if better is not None else tried
    return tried


def _tried(foreign: Foreign, rows: Mapping[str, Row]) -> Tried:
    with recording() as recorder:
        lowering = Lowering(foreign, rows, recorder)
    intervals = {id: None if x is None else x.interval for id, x in lowering.values.items()}
    unheld = frozenset(id for id, x in lowering.values.items() if x is None)
    return Tried(foreign, tuple(lowering.misses), intervals, lowering.known, unheld)


def _first_wide(tried: Tried, given_up: set[int]) -> int | None:
    """The place of the first call that isn't proved, and wasn't tried."""
    missed = {id(m.call) for m in tried.misses if m.is_wide}
    places = (n for n, call in enumerate(tried.foreign.calls) if id(call) in missed)
    return next((n for n in places if n not in given_up), None)


def _narrower(tried: Tried, at: int, rows: Mapping[str, Row]) -> Tried | None:
    """The program with such limits that the call at that place is proved, or None."""
    call = tried.foreign.calls[at]
    sources = _sources(tried, call)
    for bits in LEVELS:
        limits = dict(tried.foreign.limits)
        for source in sources:
            low, high = limits.get(source, (-(2**31), 2**31))
            limits[source] = max(low, -(2**bits)), min(high, 2**bits)
        if limits == tried.foreign.limits:
            continue
        new = _tried(replace(tried.foreign, limits=limits), rows)
        if all(m.call is not call for m in new.misses):
            return new
    return None


def _sources(tried: Tried, call: Call) -> set[str]:
    """The ids of the values that a call is made of, by integers alone, and that may get
    limits."""
    missed = {id(m.call) for m in tried.misses}
    made = {
        ref.id: (c, type.dtype)
        for c in tried.foreign.calls
        for ref, type in zip(c.results, c.types, strict=True)
    }
    free = {g.ref.id for g in tried.foreign.givens if _is_free(g)}
    found: set[str] = set()
    seen: set[str] = set()
    todo = list(_refs((call.args, *call.options.values())))
    while todo:
        ref = todo.pop()
        if ref.id in seen:
            continue
        seen.add(ref.id)
        maker, dtype = made.get(ref.id, (None, ""))
        if maker is None:
            found |= {ref.id} & free
        elif not is_integer(dtype):
            continue
        elif id(maker) not in missed:
            todo += _refs((maker.args, *maker.options.values()))
        elif ref in maker.wide:
            found.add(ref.id)
    return found


def _is_free(given: Given) -> bool:
    """Whether an input of integers may get limits: a slot without a range, or a State."""
    if given.type.dtype != "i32":
        return False
    if isinstance(given.storage, Slot):
        return given.storage.range is None
    return given.is_wide and isinstance(given.storage, State)


def _refs(value: object) -> Iterable[Ref]:
    if isinstance(value, Ref):
        yield value
    elif isinstance(value, (tuple, list)):
        for part in cast("list[object]", value):
            yield from _refs(part)
