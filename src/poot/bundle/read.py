"""A bundle's members as launch lists and kernels, every size, offset and index held against what
else the manifest says."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass

from poot.bundle.archive import is_member_name, unpack_archive
from poot.bundle.fields import Fields, parse_json
from poot.bundle.kernels import parse_kernel
from poot.bundle.launches import Scene, parse_list
from poot.bundle.needs import Needs, parse_needs
from poot.bundle.objects import check_object
from poot.bundle.residents import check_inputs, parse_buffers, parse_residents
from poot.bundle.signatures import parse_signature
from poot.bundle.write import EXPLAIN, FORMAT, MANIFEST, SUFFIXES, VERSION
from poot.codegen.code import Code
from poot.codegen.llvm.emit import symbol
from poot.errors import FormatError
from poot.launch_lists import LaunchList, LaunchLists, Signature
from poot.planner.plan import Resident

MOST_MANIFEST = 64 << 20  # bytes
_HEX = re.compile(r"[0-9a-f]{64}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Bundle:
    """What a bundle holds. `target` is what it was compiled for, `explained` the compile's report,
    `digest` the file's sha256 as hex."""

    lists: LaunchLists
    codes: tuple[Code, ...]
    needs: Needs
    key: str
    target: str
    explained: str
    digest: str


def read_bundle(data: bytes, who: str) -> Bundle:
    """Raises FormatError, with where in the file what is wrong; nothing else, whatever the bytes.
    `who` names the file."""
    members = unpack_archive(data, who)
    if MANIFEST not in members or len(members[MANIFEST]) > MOST_MANIFEST:
        raise FormatError(f"{who}: needs a {MANIFEST} of up to {MOST_MANIFEST} bytes")
    top = parse_json(bytes(members[MANIFEST]), f"{who}: {MANIFEST}")
    _check_version(top)
    files = _files(top, members)
    needs = parse_needs(top.object("needs"))
    buffers = parse_buffers(top, needs)
    residents = parse_residents(top, buffers, needs.offset_align)
    codes = tuple(_code(f, files, needs.target) for f in top.objects("kernels"))
    consts = _consts(top, residents, buffers, files)
    scene = Scene(tuple(c.kernel for c in codes), buffers, needs.offset_align, needs.binding_nbytes)
    lists: dict[str, LaunchList] = {}
    signatures: dict[str, Signature] = {}
    for f in top.objects("entries"):
        made = parse_list(f, scene)
        f.need(made.name not in lists, f"entry point {made.name!r} stands twice")
        lists[made.name] = made
        signatures[made.name] = parse_signature(f, len(made.outputs), len(made.records))
    top.need(bool(lists), "needs an entry point")
    check_inputs(top, lists, signatures, residents)
    explained = bytes(members[EXPLAIN]).decode(errors="replace") if EXPLAIN in members else ""
    spaces = tuple(sorted(buffers.items()))
    return Bundle(
        LaunchLists(lists, signatures, residents, spaces, consts),
        codes,
        needs,
        top.text("key"),
        top.text("target"),
        explained,
        hashlib.sha256(data).hexdigest(),
    )


def _check_version(top: Fields) -> None:
    found = top.text("format")
    top.need(found == FORMAT, f"needs the format {FORMAT!r}: {found[:40]!r}")
    version = top.integer("version")
    if version != VERSION:
        by = top.object("made_by").text("poot", 40)
        top.refuse(
            f"is of bundle version {version}, made by poot {by}; this poot reads version "
            f"{VERSION}; save the program again by this poot, or load it by that one"
        )


def _files(top: Fields, members: Mapping[str, memoryview]) -> dict[str, bytes]:
    """The files that the manifest lists: all that is there, each as long and as it was."""
    found: dict[str, bytes] = {}
    for f in top.objects("files"):
        name = f.text("name")
        f.need(is_member_name(name) and name in members, f"there is no member {name[:80]!r}")
        f.need(name not in found and name not in (MANIFEST, EXPLAIN), f"{name} stands twice")
        data = bytes(members[name])
        nbytes = f.integer("nbytes")
        f.need(nbytes == len(data), f"{name} has {len(data)} bytes, not {nbytes}")
        is_whole = hashlib.sha256(data).hexdigest() == f.text("sha256")
        f.need(is_whole, f"{name} is not what was saved: its digest differs")
        found[name] = data
    more = sorted(set(members) - set(found) - {MANIFEST, EXPLAIN})
    top.need(not more, f"member {more[0] if more else ''} is listed nowhere")
    return found


def _code(f: Fields, files: Mapping[str, bytes], target: str) -> Code:
    name, key = f.text("file"), f.text("key")
    kernel = parse_kernel(f)
    is_kernel = name.startswith("kernels/") and name.endswith(f".{SUFFIXES[target]}")
    f.need(is_kernel and name in files, f"{name[:80]!r} is no kernel for {target} among the files")
    f.need(_HEX.fullmatch(key) is not None, "key needs 64 hexadecimal digits")
    trips = None if f.is_null("trips") else f.integer("trips")
    data, text = files[name], ""
    if target == "llvm":
        f.need(f.text("symbol") == symbol(key), "symbol isn't that of its key")
        check_object(data, symbol(key), f"{f.where}: {name}")
        return Code(
            kernel.name, target, hashlib.sha256(data).digest() + data, text, key, kernel, trips
        )
    if target != "spirv":
        text = data.decode(errors="replace")
    # What a device keeps by a kernel's key it keeps of these bytes, whatever key they claim.
    signed = f"bundle\n{target}\n{kernel}\n".encode() + data
    return Code(kernel.name, target, data, text, hashlib.sha256(signed).hexdigest(), kernel, trips)


def _consts(
    top: Fields,
    residents: tuple[Resident, ...],
    buffers: Mapping[str, int],
    files: Mapping[str, bytes],
) -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    for r in residents:
        if r.place.space.split(".")[0] != "consts":
            continue
        name = f"consts/{r.place.space}.bin"
        top.need(name in files, f"needs {name}, the bytes of {r.name[:80]!r}")
        image = files[name]
        is_whole = len(image) == buffers[r.place.space]
        top.need(is_whole, f"{name} has {len(image)} bytes, not {buffers[r.place.space]}")
        found[r.name] = image[r.place.offset : r.place.offset + r.place.nbytes]
    return found
