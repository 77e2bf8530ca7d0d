"""Launch lists out of a manifest, each reference inside its buffer."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass

from poot.backends.base import BufferRef, Launch
from poot.bundle.fields import Fields
from poot.bundle.residents import parse_place, parse_type
from poot.codegen.attributes import PLAIN, Attributes, TensorView
from poot.codegen.kir.nodes import ELEMENT_BYTES, Kernel
from poot.ir.graph import TensorType
from poot.ir.transaction import RECORD
from poot.launch_lists import LaunchList
from poot.planner.plan import Place
from poot.planner.residents import resident_nbytes

_MOST_GROUPS = (1 << 31) - 1
_MOST_CLUSTER = 16
# Spaces that sessions share: no launch may write there.
_SHARED = ("weights", "consts")


@dataclass(frozen=True, slots=True)
class Scene:
    """What a launch may name: kernels by index, buffers by name with their bytes."""

    kernels: tuple[Kernel, ...]
    buffers: Mapping[str, int]
    align: int
    binding_nbytes: int


def parse_list(f: Fields, scene: Scene, *, is_feed: bool = False) -> LaunchList:
    """One entry point's list, and its feed. Raises FormatError."""
    name = f.text("name", 200)
    f.need(name.isprintable() and name != "", "name needs printable characters")
    rows = f.objects("launches")
    launches = tuple(_launch(row, scene) for row in rows)
    steps = tuple(
        (row.text("op"), scene.kernels[x.kernel].name)
        for row, x in zip(rows, launches, strict=True)
    )
    results = scene.buffers.get("results", 0)
    nbytes = f.integer("results_nbytes", 0, results)
    records_nbytes = f.integer("records_nbytes", 0, results if is_feed else nbytes)
    outputs = tuple((parse_type(o), _result(o, name, scene)) for o in f.objects("outputs"))
    records = tuple(_result(r, name, scene) for r in f.objects("records"))
    _check_results(f, outputs, results if is_feed else nbytes)
    for p in records:
        f.need(p.nbytes == RECORD.nbytes, f"a record has {RECORD.nbytes} bytes, not {p.nbytes}")
        f.need(p.offset + p.nbytes <= records_nbytes, "a record lies outside records_nbytes")
    late = f.flags("late")
    f.need(len(late) == len(records), f"late says of {len(late)} records, and there are "
                                      f"{len(records)}")  # fmt: skip
    feed, fed = None, f.texts("fed")
    if not f.is_null("feed"):
        f.need(not is_feed, "a feed has no feed")
        feed = parse_list(f.object("feed"), scene, is_feed=True)
        f.need(len(feed.outputs) == len(fed), "feed needs a record for each slot of fed")
        for type, place in feed.outputs:
            is_record = type == RECORD and place.offset + place.nbytes <= records_nbytes
            f.need(is_record, "feed needs outputs that are records")
    f.need(feed is not None or not fed, "fed needs a feed")
    return LaunchList(
        name, launches, steps, outputs, records, late, nbytes, records_nbytes, feed, fed
    )


def _check_results(f: Fields, outputs: tuple[tuple[TensorType, Place], ...], nbytes: int) -> None:
    for type, p in outputs:
        need = resident_nbytes(type)
        f.need(p.nbytes == need, f"an output {type} has {need} bytes, not {p.nbytes}")
        f.need(p.offset + p.nbytes <= nbytes, "an output lies outside the results")


def _result(f: Fields, name: str, scene: Scene) -> Place:
    place = parse_place(f, name, scene.buffers, 4)
    f.need(place.space == "results", f"buffer needs to be results: {place.space}")
    return place


def _launch(f: Fields, scene: Scene) -> Launch:
    f.need(bool(scene.kernels), "there is no kernel")
    index = f.integer("kernel", 0, len(scene.kernels) - 1)
    kernel = scene.kernels[index]
    grid = f.integers("grid", 0, _MOST_GROUPS)
    f.need(len(grid) == 3, f"grid needs three counts: {len(grid)}")
    refs = tuple(_ref(row, scene) for row in f.objects("buffers"))
    f.need(
        len(refs) == len(kernel.params),
        f"kernel {kernel.name} takes {len(kernel.params)} buffers: got {len(refs)}",
    )
    for param, ref in zip(kernel.params, refs, strict=True):
        need = param.elems * ELEMENT_BYTES[param.dtype]
        f.need(
            need <= ref.nbytes,
            f"kernel {kernel.name} touches {need} bytes of {param.name}: {ref.nbytes} are bound",
        )
        is_shared = ref.space.split(".")[0] in _SHARED
        f.need(param.access == "r" or not is_shared, f"{param.name} writes to {ref.space}")
    words = f.integers("imms", 0, (1 << 32) - 1)
    f.need(
        len(words) == len(kernel.imms),
        f"kernel {kernel.name} takes {len(kernel.imms)} immediates: got {len(words)}",
    )
    imms = tuple(_imm(i.dtype, w) for i, w in zip(kernel.imms, words, strict=True))
    f.flag("waits")
    maps = tuple((_ref(row, scene), _view(row)) for row in f.objects("maps"))
    f.need(len(maps) == len(kernel.blobs), f"kernel {kernel.name} takes {len(kernel.blobs)} maps")
    return Launch(index, (grid[0], grid[1], grid[2]), refs, imms, _attributes(f), maps)


def _imm(dtype: str, word: int) -> int | float:
    letter = {"i32": "i", "u32": "I", "f32": "f"}[dtype]
    (value,) = struct.unpack(f"<{letter}", struct.pack("<I", word))
    return value


def _ref(f: Fields, scene: Scene) -> BufferRef:
    space = f.text("buffer")
    f.need(space in scene.buffers, f"there is no buffer {space[:40]!r}")
    offset, nbytes = f.integer("offset"), f.integer("nbytes", 1)
    have = scene.buffers[space]
    f.need(
        offset + nbytes <= have,
        f"bytes [{offset}, {offset + nbytes}) of {space}, which has {have}",
    )
    f.need(offset % scene.align == 0, f"offset {offset} is no multiple of {scene.align}")
    f.need(nbytes <= scene.binding_nbytes, f"{nbytes} bytes are more than needs says of a binding")
    return BufferRef(space, offset, nbytes)


def _view(f: Fields) -> TensorView:
    view = TensorView(f.integers("dims", 1), f.integers("strides", 1))
    f.need(len(view.dims) == len(view.strides) >= 1, "dims and strides need one of each axis")
    return view


def _attributes(f: Fields) -> Attributes:
    if f.is_null("attributes"):
        return PLAIN
    a = f.object("attributes")
    cluster = a.integers("cluster", 1, _MOST_CLUSTER)
    a.need(len(cluster) == 3, f"cluster needs three counts: {len(cluster)}")
    where = (cluster[0], cluster[1], cluster[2])
    return Attributes(a.flag("overlap"), where, a.flag("is_resident"))
