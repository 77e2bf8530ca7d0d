"""A program's manifest and kernels, as the members of a bundle."""

from __future__ import annotations

import hashlib
import json
import re
import struct
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version

from poot.backends.base import BufferRef, Launch
from poot.backends.launches import pack_immediates, waits
from poot.bundle.needs import needs_json, needs_of
from poot.codegen.attributes import PLAIN, TensorView
from poot.codegen.code import Code
from poot.codegen.kir.nodes import Kernel
from poot.codegen.llvm.compile import object_file
from poot.codegen.llvm.emit import symbol
from poot.errors import CapabilityError
from poot.failures import Guard
from poot.ir.graph import Input, Slot, State, TensorType, Weight
from poot.ir.tree import LEAF, Tree
from poot.launch_lists import LaunchList, LaunchLists, Signature
from poot.planner.key import GENERATOR_VERSION
from poot.planner.plan import Place, Resident
from poot.program import Compiled
from poot.report import explain

FORMAT, VERSION = "poot bundle", 1
MANIFEST, EXPLAIN = "manifest.json", "explain.txt"
SUFFIXES = {"llvm": "o", "spirv": "spv", "ptx": "ptx", "hip": "hip"}
STORAGES = {Weight: "weight", State: "state", Slot: "slot"}


def bundle_members(program: Compiled) -> dict[str, bytes]:
    """The members by name. Raises CapabilityError for a program of the oracle, which has no
    kernels."""
    if program.limits.target not in SUFFIXES:
        raise CapabilityError(
            f"a program compiled for {program.target!r} has no kernels to save; compile it for a "
            "device or a limits profile"
        )
    lists = program.lists()
    files = {_file(n, c): _data(c) for n, c in enumerate(program.codes)}
    files |= {f"consts/{space}.bin": _image(lists, space) for space in _const_spaces(lists)}
    manifest = _manifest(program, lists, files)
    head = json.dumps(manifest, indent=1, ensure_ascii=True, allow_nan=False).encode()
    return {MANIFEST: head, EXPLAIN: explain(program).encode(), **files}


def _poot_version() -> str:
    try:
        return version("poot")
    except PackageNotFoundError:
        return "from source"


def _file(n: int, code: Code) -> str:
    plain = re.sub(r"[^A-Za-z0-9_]", "_", code.name)[:60]
    return f"kernels/{n}.{plain}.{SUFFIXES[code.target]}"


def _data(code: Code) -> bytes:
    if code.target != "llvm":
        return code.binary
    found = object_file(code.binary)
    assert found is not None, "an emitter's own object file"
    return found


def _const_spaces(lists: LaunchLists) -> list[str]:
    return sorted({r.place.space for r in lists.residents if r.name in lists.consts})


def _image(lists: LaunchLists, space: str) -> bytes:
    """All bytes of a space of Consts."""
    image = bytearray(dict(lists.spaces)[space])
    for r in lists.residents:
        if r.place.space == space and r.name in lists.consts:
            data = lists.consts[r.name]
            image[r.place.offset : r.place.offset + len(data)] = data
    return bytes(image)


def _manifest(
    program: Compiled, lists: LaunchLists, files: Mapping[str, bytes]
) -> dict[str, object]:
    kernels = [c.kernel for c in program.codes]
    return {
        "format": FORMAT,
        "version": VERSION,
        "made_by": {"poot": _poot_version(), "generator": GENERATOR_VERSION},
        "key": program.key,
        "target": program.target,
        "needs": needs_json(needs_of(lists, program.codes, program.limits)),
        "files": [
            {"name": name, "nbytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
            for name, data in files.items()
        ],
        "buffers": [{"name": name, "nbytes": nbytes} for name, nbytes in lists.spaces],
        "kernels": [
            _kernel(c.kernel)
            | {"file": _file(n, c), "key": c.key, "symbol": symbol(c.key), "trips": c.trips}
            for n, c in enumerate(program.codes)
        ],
        "residents": [resident_json(r) for r in lists.residents],
        "entries": [
            list_json(x, kernels) | _signature(lists.signatures[name])
            for name, x in lists.lists.items()
        ],
    }


def _kernel(k: Kernel) -> dict[str, object]:
    return {
        "name": k.name,
        "threads": k.threads,
        "subgroup": k.subgroup,
        "residents": k.residents,
        "shared_nbytes": k.shared_nbytes,
        "params": [
            {"name": p.name, "dtype": p.dtype, "elems": p.elems, "access": p.access,
             "align": p.align}
            for p in k.params
        ],
        "imms": [{"name": i.name, "dtype": i.dtype} for i in k.imms],
        "blobs": [
            {"name": b.name, "nbytes": b.nbytes, "align": b.align, "dtype": b.dtype,
             "box": list(b.box), "swizzle": b.swizzle}
            for b in k.blobs
        ],
        "shared": [
            {"name": s.name, "dtype": s.dtype, "elems": s.elems, "align": s.align}
            for s in k.shared
        ],
    }  # fmt: skip


def _type(t: TensorType) -> dict[str, object]:
    return {"dtype": t.dtype, "shape": list(t.shape)}


def _place(p: Place) -> dict[str, object]:
    return {"buffer": p.space, "offset": p.offset, "nbytes": p.nbytes}


def resident_json(r: Resident) -> dict[str, object]:
    """What `residents.parse_residents` reads."""
    layout = {"kind": r.layout.kind, "params": list(r.layout.params)}
    return {"name": r.name, **_type(r.type), "layout": layout, **_place(r.place)}


def list_json(x: LaunchList, kernels: Sequence[Kernel]) -> dict[str, object]:
    """What `launches.parse_list` reads."""
    must = waits(x.launches, kernels)
    return {
        "name": x.name,
        "launches": [
            _launch(launch, kernels[launch.kernel], wait) | {"op": op}
            for launch, wait, (op, _) in zip(x.launches, must, x.steps, strict=True)
        ],
        "outputs": [_type(t) | _place(p) for t, p in x.outputs],
        "records": [_place(p) for p in x.records],
        "late": list(x.late),
        "results_nbytes": x.results_nbytes,
        "records_nbytes": x.records_nbytes,
        "feed": None if x.feed is None else list_json(x.feed, kernels),
        "fed": list(x.fed),
    }


def _launch(launch: Launch, kernel: Kernel, wait: bool) -> dict[str, object]:
    words = pack_immediates(kernel, launch.imms)[: 4 * len(launch.imms)]
    made: dict[str, object] = {
        "kernel": launch.kernel,
        "grid": list(launch.grid),
        "buffers": [_ref(ref) for ref in launch.buffers],
        "imms": list(struct.unpack(f"<{len(launch.imms)}I", words)),
        "waits": wait,
        "maps": [_ref(ref) | _view(view) for ref, view in launch.maps],
        "attributes": None,
    }
    asked = launch.attributes
    if asked != PLAIN:
        cluster = list(asked.cluster)
        made["attributes"] = {
            "overlap": asked.overlap, "cluster": cluster, "is_resident": asked.is_resident
        }  # fmt: skip
    return made


def _ref(ref: BufferRef) -> dict[str, object]:
    return {"buffer": ref.space, "offset": ref.offset, "nbytes": ref.nbytes}


def _view(view: TensorView) -> dict[str, object]:
    return {"dims": list(view.dims), "strides": list(view.strides)}


def _signature(s: Signature) -> dict[str, object]:
    return {
        "inputs": [_input(i) for i in s.inputs],
        "written": list(s.written),
        "guards": [_guard(g) for g in s.guards],
        "tree": _tree(s.tree) if isinstance(s.tree, Tree) else None,
    }


def _input(i: Input) -> dict[str, object]:
    made = {"name": i.name, "storage": STORAGES[type(i.storage)], **_type(i.var.type)}  # pyright: ignore[reportArgumentType] - a signature has no Const
    if isinstance(i.storage, Slot):
        bounds = None if i.storage.range is None else list(i.storage.range)
        made |= {"kind": i.storage.kind, "range": bounds}
    return made


def _guard(g: Guard) -> dict[str, object]:
    return {
        "op": g.op,
        "shape": list(g.shape),
        "loc": g.loc,
        "needed": g.needed,
        "bounds": None if g.bounds is None else list(g.bounds),
    }


def _tree(t: Tree) -> object:
    """A leaf is "leaf". What has a class of the user's is a dict of its fields: a bundle holds no
    classes."""
    if t == LEAF:
        return "leaf"
    kind = "dict" if t.kind in ("named", "record") else t.kind
    return {"kind": kind, "keys": list(t.keys), "children": [_tree(c) for c in t.children]}
