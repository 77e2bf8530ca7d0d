"""Programs in the disk cache: what a compile left, for the next process that traces the same.

An entry has the launch lists and the keys of the kernels' own entries. It lies under a digest of
all that decides them: the traced graphs, the limits, the options, and the compiler itself. What
only the graphs have (locations, types of inputs, the nesting of outputs, Consts) is taken from the
graphs at hand. A small program is compiled as soon as it would be read, and isn't kept.
"""

from __future__ import annotations

import hashlib
import json
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from poot.bundle.fields import Fields, parse_json
from poot.bundle.launches import Scene, parse_list
from poot.bundle.residents import check_inputs, parse_residents
from poot.bundle.write import list_json, resident_json
from poot.cache import DiskCache
from poot.codegen.code import Code
from poot.codegen.stored import decode
from poot.compiled import Whole
from poot.errors import FormatError
from poot.failures import guards_of
from poot.ir.graph import Const, Graph, Input, State
from poot.launch_lists import LaunchList, LaunchLists, Signature, const_bytes, lists_of
from poot.limits import DeviceLimits
from poot.lowering import LOG, request_key
from poot.making import Options
from poot.passes.pipeline import PIPELINE
from poot.passes.regions.apart import APART
from poot.planner.key import GENERATOR_VERSION, entry_text

FORMAT = "poot program 1"
LEAST_EQNS = 256  # of all entry points: about 10 ms of passes and plan
_HEX = re.compile(r"[0-9a-f]{64}", re.ASCII)
_COMPILER = ("ir", "passes", "planner", "codegen")
_NUMBERS = ("poot.passes.", "poot.planner.", "poot.codegen.gen.")


@dataclass(frozen=True, slots=True)
class Kept:
    """A program as an entry has it. `lists` lacks the Consts that the graphs hold."""

    key: str
    codes: tuple[Code, ...]
    lists: LaunchLists


def program_key(graphs: Mapping[str, Graph], limits: DeviceLimits, options: Options) -> str | None:
    """What the program is kept under, as 64 hexadecimal digits. None where it isn't kept: a small
    one; one for the oracle, which has no launches; one of passes that aren't the compiler's own,
    which are known by name alone; one by a compiler without source files, which nobody can tell
    from the next one."""
    is_small = sum(len(g.eqns) for g in graphs.values()) < LEAST_EQNS
    if is_small or limits.target == "oracle" or options.passes not in ((), PIPELINE):
        return None
    compiler = _source_digest(Path(__file__).parent)
    if compiler is None:
        return None
    asked = f"{FORMAT}\n{GENERATOR_VERSION}\n{options}\n{options.memory_budget}\n{limits}\n"
    h = hashlib.sha256(asked.encode() + compiler)
    h.update(_numbers())
    for name, graph in graphs.items():
        h.update(entry_text(name, graph))
    return h.hexdigest()


@cache
def _source_digest(root: Path) -> bytes | None:
    """A digest of the compiler's source, as it was when this process first asked."""
    rooms = [p for room in _COMPILER for p in (root / room).rglob("*.py")]
    files = sorted([*root.glob("*.py"), *rooms])
    h = hashlib.sha256()
    for path in files:
        h.update(f"{path.relative_to(root)}\n".encode() + path.read_bytes())
    return h.digest() if rooms else None


def _numbers() -> bytes:
    """The compiler's own numbers as they stand now: a test or a benchmark may have set one."""
    found: list[str] = []
    for name in sorted(n for n in sys.modules if n.startswith(_NUMBERS)):
        held = vars(sys.modules[name])
        found.append(f"{name}{[(k, v) for k, v in held.items() if type(v) in (int, float)]}")
    return "\n".join(found).encode()


def keep(disk: DiskCache, key: str, whole: Whole) -> None:
    """Leaves the program under its key, where all that `take` adds is in the traced graphs, and
    every step runs as it was planned."""
    lists = lists_of(whole)
    if not all(_is_of_source(e.source, e.final) for e in whole.entries.values()):
        return
    if any(r.name == APART for e in whole.entries.values() for r in e.reports):
        return  # each compile says so in the log
    there = const_bytes(e.source for e in whole.entries.values())
    consts = {name: data for name, data in lists.consts.items() if name not in there}
    kernels = [c.kernel for c in whole.codes]
    head = {
        "format": FORMAT,
        "key": whole.plan.key,
        "requests": [request_key(r, whole.plan.limits) for r in whole.lowered],
        "codes": [c.key for c in whole.codes],
        "buffers": [{"name": name, "nbytes": nbytes} for name, nbytes in lists.spaces],
        "residents": [resident_json(r) for r in lists.residents],
        "consts": [{"name": name, "nbytes": len(data)} for name, data in consts.items()],
        "entries": [
            list_json(x, kernels)
            | {
                "inputs": [i.name for i in lists.signatures[name].inputs],
                "written": list(lists.signatures[name].written),
            }
            for name, x in lists.lists.items()
        ],
    }
    text = json.dumps(head, allow_nan=False).encode()
    disk.put(key, len(text).to_bytes(8, "little") + text + b"".join(consts.values()))


def _is_of_source(source: Graph, final: Graph) -> bool:
    """Whether inputs and outputs' nesting are the traced graph's, so that it can stand for them."""
    plain = {i.name: (i.var.type, i.storage) for i in source.inputs}
    left = {i.name: (i.var.type, i.storage) for i in final.inputs}
    plain, left = ({n: at for n, at in x.items() if not isinstance(at[1], Const)}
                   for x in (plain, left))  # fmt: skip
    return list(left.items()) == list(plain.items()) and final.tree == source.tree


def take(
    disk: DiskCache, key: str, graphs: Mapping[str, Graph], limits: DeviceLimits
) -> Kept | None:
    """The program kept under the key; None where there is none, or none that is whole, or where a
    kernel of it is gone."""
    data = disk.get(key)
    if data is None:
        return None
    try:
        return _parsed(data, disk, graphs, limits)
    except FormatError as e:
        LOG.warning("a kept program was not used: %s", e.message)
        return None


def _parsed(
    data: bytes, disk: DiskCache, graphs: Mapping[str, Graph], limits: DeviceLimits
) -> Kept | None:
    size = int.from_bytes(data[:8], "little")
    top = parse_json(data[8 : 8 + size], "a kept program")
    found = top.text("format")
    top.need(found == FORMAT, f"is of format {found[:40]!r}, not {FORMAT!r}")
    codes: dict[str, Code] = {}
    for request in top.texts("requests"):
        top.need(_HEX.fullmatch(request) is not None, "a request's key needs 64 digits")
        stored = disk.get(request)
        if stored is None:
            return None
        codes.update({c.key: c for c in decode(stored)[1]})
    top.need(list(codes) == list(top.texts("codes")), "its kernels are others")
    buffers = {f.text("name"): f.integer("nbytes", 1) for f in top.objects("buffers")}
    residents = parse_residents(top, buffers, limits.offset_align)
    kernels = tuple(c.kernel for c in codes.values())
    scene = Scene(kernels, buffers, limits.offset_align, limits.binding_nbytes)
    lists: dict[str, LaunchList] = {}
    signatures: dict[str, Signature] = {}
    for f in top.objects("entries"):
        made = parse_list(f, scene)
        top.need(made.name in graphs and made.name not in lists, "its entry points are others")
        lists[made.name] = made
        signatures[made.name] = _signature(f, graphs[made.name], made)
    top.need(list(lists) == list(graphs), "its entry points are others")
    check_inputs(top, lists, signatures, residents)
    consts = _consts(top, data[8 + size :])
    there = {**const_bytes(graphs.values()), **consts}
    for r in residents:
        if r.place.space.split(".")[0] == "consts":
            top.need(len(there.get(r.name, b"")) == r.place.nbytes, f"it lacks {r.name[:80]}")
    spaces = tuple(buffers.items())
    whole = LaunchLists(lists, signatures, residents, spaces, consts)
    return Kept(top.text("key"), tuple(codes.values()), whole)


def _signature(f: Fields, source: Graph, made: LaunchList) -> Signature:
    """The traced graph's, which the list has to give the outputs and the records of. Raises
    FormatError."""
    named = {i.name: i for i in source.inputs if not isinstance(i.storage, Const)}
    inputs: list[Input] = []
    for name in f.texts("inputs"):
        f.need(name in named, f"there is no input {name[:80]!r}")
        inputs.append(named[name])
    f.need([i.name for i in inputs] == list(named), "its inputs are others")
    types = tuple(v.type for v in source.outputs)
    given = tuple(type for type, _ in made.outputs)
    f.need(given == types, f"its {len(given)} outputs are not the {len(types)} of the graph")
    guards = guards_of(source)
    have = len(made.records)
    f.need(have == len(guards), f"{len(guards)} guards, and {have} records")
    states = {i.var.id: i.name for i in source.inputs if isinstance(i.storage, State)}
    changed = {states[a.id] for a, b in source.states if a.id != b.id}
    written = f.texts("written")
    f.need(set(written) <= changed, "written needs names of States that a step changes")
    return Signature(tuple(inputs), written, guards, source.tree)


def _consts(top: Fields, data: bytes) -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    at = 0
    for f in top.objects("consts"):
        nbytes = f.integer("nbytes")
        found[f.text("name")] = data[at : at + nbytes]
        at += nbytes
    top.need(at == len(data), f"its Consts have {len(data)} bytes, not {at}")
    return found
