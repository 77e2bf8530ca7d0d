"""What stays on the device between steps, out of a manifest: buffers, residents, and that the
entry points' inputs are among them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from poot.bundle.fields import MOST_INT, Fields
from poot.bundle.needs import Needs
from poot.ir.dtypes import DTYPES
from poot.ir.graph import Input, Slot, State, TensorType
from poot.ir.transaction import can_be_fed
from poot.launch_lists import LaunchList, Signature
from poot.planner.feed import OK
from poot.planner.layouts import PACKINGS, packed_nbytes
from poot.planner.plan import Place, Resident
from poot.planner.request import Layout
from poot.planner.residents import slot_name
from poot.planner.words import WORD

_KINDS = ("arena", "results", "weights", "states", "slots", "consts", "rest")
_RESIDENT_KINDS = ("weights", "states", "slots", "consts")
_MOST_RANK = 16
_MOST_WIDTH = 1 << 16  # of a panel


def parse_buffers(top: Fields, needs: Needs) -> dict[str, int]:
    """Buffers by name, with their bytes; no more of them, and none larger, than `needs` says."""
    found: dict[str, int] = {}
    for f in top.objects("buffers"):
        name = f.text("name", 40)
        kind, dot, part = name.partition(".")
        is_known = kind in _KINDS and (not dot or (part.isascii() and part.isdigit()))
        f.need(is_known and name not in found, f"{name!r} is no name of a buffer, or stands twice")
        found[name] = f.integer("nbytes", 1, needs.buffer_nbytes)
    total = sum(found.values())
    top.need(total == needs.memory_nbytes, f"buffers take {total} bytes, and needs says "
                                           f"{needs.memory_nbytes}")  # fmt: skip
    return found


def parse_type(f: Fields) -> TensorType:
    dtype, shape = f.choice("dtype", tuple(DTYPES)), f.integers("shape")
    f.need(len(shape) <= _MOST_RANK, f"shape has {len(shape)} axes")
    type = TensorType(dtype, shape)
    f.need(type.nbytes <= MOST_INT, f"shape is too large: {type.elems} elements")
    return type


def parse_place(f: Fields, name: str, buffers: Mapping[str, int], align: int) -> Place:
    space = f.text("buffer")
    f.need(space in buffers, f"there is no buffer {space[:40]!r}")
    offset, nbytes = f.integer("offset"), f.integer("nbytes")
    have = buffers[space]
    inside = offset + nbytes <= have and offset % align == 0 and nbytes % 4 == 0
    f.need(
        inside,
        f"bytes [{offset}, {offset + nbytes}) of {space}, which has {have}: needs whole words "
        f"inside it, from a multiple of {align}",
    )
    return Place(space, offset, nbytes, name)


def parse_residents(top: Fields, buffers: Mapping[str, int], align: int) -> tuple[Resident, ...]:
    """Each in a buffer of its kind, none over another, of as many bytes as its type and layout
    take."""
    found: dict[str, Resident] = {}
    for f in top.objects("residents"):
        name = f.text("name")
        f.need(name not in found, f"resident {name[:80]!r} stands twice")
        place, type = parse_place(f, name, buffers, align), parse_type(f)
        kind = place.space.split(".")[0]
        f.need(kind in _RESIDENT_KINDS, f"a resident lies in no {kind}")
        layout = _layout(f.object("layout"), type)
        f.need(layout == Layout() or kind == "weights", f"{kind} have no layouts")
        need = packed_nbytes(type, layout)
        f.need(place.nbytes == need, f"{type} takes {need} bytes, not {place.nbytes}")
        found[name] = Resident(name, type, layout, place)
    _check_apart(top, list(found.values()))
    return tuple(found.values())


def _layout(f: Fields, type: TensorType) -> Layout:
    layout = Layout(f.choice("kind", tuple(PACKINGS)), f.integers("params"))
    if layout.kind == "panels":
        f.need(len(layout.params) == 2, "panels need an axis and a width")
        axis, width = layout.params
        f.need(axis < len(type.shape), f"{type} has no axis {axis}")
        f.need(0 < width <= _MOST_WIDTH, f"a panel is 1 to {_MOST_WIDTH} wide: {width}")
    else:
        f.need(not layout.params, f"{layout.kind} has no numbers")
    return layout


def _check_apart(top: Fields, residents: Sequence[Resident]) -> None:
    ends: dict[str, tuple[int, str]] = {}
    for r in sorted(residents, key=lambda r: (r.place.space, r.place.offset)):
        end, other = ends.get(r.place.space, (0, ""))
        is_apart = r.place.offset >= end or not r.place.nbytes
        top.need(is_apart, f"residents {other[:80]!r} and {r.name[:80]!r} lie over each other")
        if r.place.nbytes:
            ends[r.place.space] = (r.place.offset + r.place.nbytes, r.name)


def check_inputs(
    top: Fields,
    lists: Mapping[str, LaunchList],
    signatures: Mapping[str, Signature],
    residents: Sequence[Resident],
) -> None:
    """Each input has its resident; entry points that share a Weight or State agree about it; slots
    that may come from the device are such."""
    by_name = {r.name: r for r in residents}
    packed: dict[str, list[Resident]] = {}
    for r in residents:
        packed.setdefault(r.name.split("@")[0], []).append(r)
    shared: dict[str, Input] = {}
    for entry, signature in signatures.items():
        fed = {i.name for i in signature.inputs if can_be_fed(i)}
        unknown = sorted(set(lists[entry].fed) - fed)
        top.need(
            not unknown, f"entry point {entry!r} feeds what is no slot with a range: {unknown}"
        )
        word = by_name.get(slot_name(entry, OK))
        top.need(word is None or word.type == WORD, f"the word of {entry!r} needs to be {WORD}")
        for i in signature.inputs:
            where = f"input {i.name[:80]!r} of {entry!r}"
            if isinstance(i.storage, Slot):
                _need_there(top, where, i, [by_name.get(slot_name(entry, i.name))], "slots")
                continue
            other = shared.setdefault(i.name, i)
            is_same = (other.var.type, other.storage) == (i.var.type, i.storage)
            top.need(is_same, f"{where} is another than that of other entry points")
            if isinstance(i.storage, State):
                _need_there(top, where, i, [by_name.get(i.name)], "states")
            else:
                _need_there(top, where, i, [*packed.get(i.name, [None])], "weights")


def _need_there(
    top: Fields, where: str, i: Input, found: Sequence[Resident | None], kind: str
) -> None:
    for r in found:
        is_there = r is not None and r.type == i.var.type and r.place.space.split(".")[0] == kind
        top.need(is_there, f"{where} needs a resident of its type among {kind}")
