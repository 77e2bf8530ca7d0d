"""What a generator may count on of a region, checked by following indices in numpy."""

from __future__ import annotations

import numpy as np

from poot.ir.attrs import graph_attr, ints_attr, str_attr
from poot.ir.graph import Eqn, Graph
from poot.passes.regions.table import ELEMENTWISE, UPDATES, is_pullable

Maps = dict[int, np.ndarray]


def check_regions(graph: Graph, buffers: int) -> None:
    """Asserts the contract of every region eqn of a graph, and that nothing else is left."""
    for eqn in graph.eqns:
        assert eqn.op == "region", eqn
        check_region(eqn, buffers)


def check_region(eqn: Eqn, buffers: int) -> None:
    body, updates = graph_attr(eqn), eqn.attr("updates")
    assert isinstance(updates, tuple)
    assert len(set(eqn.ins)) == len(eqn.ins)
    many = len(eqn.ins) + len(eqn.outs) - len(updates)
    assert many <= buffers or len(body.eqns) == 1, (many, buffers)
    assert not any(e.op == "region" for e in body.eqns)
    for out, source in updates:
        _check_update(body, out, source)
    updated = {out for out, _ in updates}
    plain = [v for n, v in enumerate(body.outputs) if n not in updated]
    {
        "none": _check_none,
        "reduce": _check_reduce,
        "matmul": _check_matmul,
        "attention": _check_attention,
    }[str_attr(eqn, "anchor")](body, plain, updates)


def _check_update(body: Graph, out: int, source: int) -> None:
    """The out is made by an update whose x is that input, which nothing else reads."""
    x = body.inputs[source].var
    (reader,) = [e for e in body.eqns if x in e.ins]
    assert reader.op in UPDATES
    assert reader.ins[0] == x
    assert reader.ins.count(x) == 1
    assert reader.out == body.outputs[out]
    assert not any(reader.out in e.ins for e in body.eqns)


def _check_none(body: Graph, plain: list, updates: tuple) -> None:
    rank = [e for e in body.eqns if e.op in ("topk", "argmax", "block_topk")]
    if rank:
        assert len(rank) == 1
        assert set(body.outputs) <= set(rank[0].outs)
    ends = {body.outputs[out].id for out, _ in updates}
    for e in body.eqns:
        assert is_pullable(e) or e in rank or e.outs[0].id in ends, e
    elems = {v.type.elems for v in plain}
    makers = {o.id: e for e in body.eqns for o in e.outs}
    elems |= {makers[id].ins[1].type.elems for id in ends}
    assert len(elems) == 1, elems


def _check_reduce(body: Graph, plain: list, updates: tuple) -> None:
    assert updates == ()
    folds = [e for e in body.eqns if e.op == "reduce"]
    assert all(is_pullable(e) or e in folds for e in body.eqns)
    x = folds[0].ins[0].type
    rows, elems = folds[0].out.type.elems, x.elems
    for e in folds:
        rank, axes = len(e.ins[0].type.shape), ints_attr(e, "axis")
        trails = axes == tuple(range(rank - len(axes), rank))
        assert trails or len(folds) == 1
        assert (e.out.type.elems, e.ins[0].type.elems) == (rows, elems)
    for v in plain:
        assert v.type.elems in (rows, elems)
    _follow_rows(body, folds, rows, elems)


def _follow_rows(body: Graph, folds: list[Eqn], rows: int, elems: int) -> None:
    """Each value that depends on a reduction lies by rows: its element i belongs to row i // cols,
    or to row i."""
    cols = elems // rows if rows else 0
    maps: Maps = {}
    for e in body.eqns:
        seen = [v for v in e.ins if v.id in maps]
        if e in folds:
            if seen and cols:
                want = np.arange(rows).repeat(cols).reshape(e.ins[0].type.shape)
                np.testing.assert_array_equal(maps[e.ins[0].id], want)
            maps[e.out.id] = np.arange(rows).reshape(e.out.type.shape)
        elif seen:
            _carry(e, maps)
    for v in body.outputs:
        if v.id in maps and rows:
            want = np.arange(rows).repeat(v.type.elems // rows).reshape(v.type.shape)
            np.testing.assert_array_equal(maps[v.id], want)


def _carry(e: Eqn, maps: Maps) -> None:
    """Moves the index map of e's operands to its results; they have to agree element by element."""
    first = next(v for v in e.ins if v.id in maps)
    if e.op == "reshape":
        got = maps[first.id].reshape(e.out.type.shape)
    elif e.op == "transpose":
        got = maps[first.id].transpose(ints_attr(e, "perm"))
    elif e.op == "broadcast":
        got = np.broadcast_to(maps[first.id], e.out.type.shape)
    elif e.op in UPDATES:
        assert [v.id in maps for v in e.ins] == [False, True, False]
        return
    elif e.op == "rope":
        got = maps[first.id]
        _check_heads(e, got)
    else:
        assert e.op in ELEMENTWISE, e
        shape = e.outs[0].type.shape
        wide = [np.broadcast_to(maps[v.id], shape) for v in e.ins if v.id in maps]
        for other in wide[1:]:
            np.testing.assert_array_equal(other, wide[0])
        got = wide[0]
    for v in e.outs:
        maps[v.id] = got


def _check_heads(e: Eqn, numbers: np.ndarray) -> None:
    """A rotation at a product's end turns whole heads, whose elements are neighbours there."""
    width = numbers.shape[-1]
    assert e.ins[1].type.shape[-1] * 2 == width, e
    lines = numbers.reshape(-1, width)
    assert (lines[:, 0] % width == 0).all(), e
    np.testing.assert_array_equal(lines, lines[:, :1] + np.arange(width))


def _check_epilogue(body: Graph, anchors: list[Eqn], plain: list) -> None:
    """Each result depends on the anchors' results at one index of theirs, each index once."""
    maps: Maps = {}
    for e in body.eqns:
        if e in anchors:
            assert not any(v.id in maps for v in e.ins), "an anchor depends on another"
            for v in e.outs:
                maps[v.id] = np.arange(v.type.elems).reshape(v.type.shape)
        elif any(v.id in maps for v in e.ins):
            _carry(e, maps)
    for v in plain:
        np.testing.assert_array_equal(np.sort(maps[v.id], axis=None), np.arange(v.type.elems))


def _check_matmul(body: Graph, plain: list, updates: tuple) -> None:
    products = [e for e in body.eqns if e.op == "matmul"]
    left = products[0].ins[0]
    assert all(e.ins[0] == left for e in products)
    assert len({e.out.type.shape[:-1] for e in products}) == 1
    folds = [e for e in body.eqns if e.op == "reduce"]
    assert len(folds) <= 1
    if folds:
        rows = folds[0].out.type.elems
        assert folds[0].ins[0].type.elems // rows == left.type.shape[-1]
        _follow_rows(_before(body, products[0]), folds, rows, folds[0].ins[0].type.elems)
    ends = {body.outputs[out].id for out, _ in updates}
    for e in body.eqns:
        assert is_pullable(e) or e in products or e in folds or e.outs[0].id in ends, e
    _check_epilogue(body, products, plain)


def _before(body: Graph, anchor: Eqn) -> Graph:
    """The part of a body that an anchor's left operand needs, as a graph that gives it."""
    need, kept = {anchor.ins[0].id}, list[Eqn]()
    for e in reversed(body.eqns):
        if any(v.id in need for v in e.outs):
            kept.append(e)
            need |= {v.id for v in e.ins}
    return Graph(body.inputs, tuple(reversed(kept)), (anchor.ins[0],))


def _check_attention(body: Graph, plain: list, updates: tuple) -> None:
    assert updates == ()
    (anchor,) = [e for e in body.eqns if e.op in ("attention", "selected_attention")]
    assert all(is_pullable(e) or e is anchor for e in body.eqns)
    _check_epilogue(body, [anchor], plain)
