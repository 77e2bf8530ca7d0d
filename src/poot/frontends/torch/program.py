"""`from_torch`: an exported torch program as a graph."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from poot.frontends.foreign import Call, Foreign, Given, Ref
from poot.frontends.imported import Imported
from poot.frontends.lower import lower
from poot.frontends.narrow import narrowed
from poot.frontends.ranges import declared
from poot.frontends.torch.decompose import decomposed
from poot.frontends.torch.read import MOVES, read_exported
from poot.frontends.torch.table import ATEN
from poot.ir.graph import Slot


def from_torch(program: object, *, ranges: Mapping[str, tuple[int, int]] | None = None) -> Imported:
    """The graph and the weights of a `torch.export.ExportedProgram`.

    Parameters and buffers of floats become Weights, under the model's names and in its memory;
    buffers that the program writes become States; the example inputs become slots, under the names
    of forward's arguments. int64 becomes i32. A slot that indexes an embedding gets its range, and
    one named in `ranges` the range (lo, hi), hi excluded, that stands there; without axes, or with
    one, it is a position: attention over a cache visits the keys up to there alone.
    Raises TraceError where an extent is dynamic, naming the dimension, and UnsupportedOps with
    every call that there is no row for, and its line."""
    foreign = with_ranges(read_exported(decomposed(program)))
    tried = narrowed(declared(foreign, ranges, "from_torch"), ATEN)
    return lower(tried.foreign, ATEN, "from_torch")


def with_ranges(foreign: Foreign) -> Foreign:
    """The program with a range on each slot that is an index of an embedding: what lies outside is
    refused at the bind, before anything runs."""
    made = {ref.id: call for call in foreign.calls for ref in call.results}
    limits: dict[str, int] = {}
    types = {g.ref.id: g.type for g in foreign.givens}
    for call in foreign.calls:
        if call.op != "aten.embedding.default" or call.problem:
            continue
        table, index = call.args[:2]
        if not isinstance(table, Ref) or not isinstance(index, Ref) or table.id not in types:
            continue
        source, rows = _source(index, made), types[table.id].shape[0]
        limits[source.id] = min(rows, limits.get(source.id, rows))
    givens = [_index(g, limits.get(g.ref.id)) for g in foreign.givens]
    return replace(foreign, givens=tuple(givens))


def _index(given: Given, rows: int | None) -> Given:
    is_index = isinstance(given.storage, Slot) and given.type.dtype == "i32" and rows
    return replace(given, storage=Slot("user", (0, rows))) if is_index and rows else given


def _source(ref: Ref, made: dict[str, Call]) -> Ref:
    """The value that ref is, but for moves."""
    while (call := made.get(ref.id)) is not None and call.op in MOVES and not call.problem:
        first = call.args[0]
        assert isinstance(first, Ref)
        if call.types[0].dtype != "i32":
            break
        ref = first
    return ref
