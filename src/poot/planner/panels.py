"""The CPU's matmul schedule, "panels": columns in panels as wide as a few vectors, rows in strips
as tall as there are registers.

A Weight on the right is packed at bind, so that a panel's columns lie side by side for each term.
A few rows are staged in each group's workgroup memory; more are packed into scratch first, strip
by strip. A right operand that has to be made (from codes, from 16 bits, from strides) is made once
a panel, in workgroup memory, where several strips read it.
"""

from __future__ import annotations

import math

from poot.ir.attrs import ints_attr
from poot.ir.dtypes import is_integer
from poot.ir.graph import Eqn, Graph, Var, Weight
from poot.ir.shapes import shape_groups
from poot.limits import DeviceLimits
from poot.planner.request import Choice, Layout, Schedule, Scratch

# Vectors side by side in a panel, and registers that stay free of sums.
PANEL_VECTORS = 2
SPARE_REGISTERS = 5
# Groups a thread, so that a slow thread leaves its share to others.
GROUPS_A_THREAD = 4
# Terms an unrolled step takes: as many as share a scale in a quantised weight, else a few.
QUANTISED_RUN = 32
RUN = 8
# What `columns_axes` says of an input that no axis of is the columns.
ANOTHER_WAY = -1
_MOVES = ("gather", "concat", "slice", "dynamic_slice", "dynamic_update_slice", "rope")


def choose_panels(body: Graph, limits: DeviceLimits) -> Choice | None:
    """The schedule of a matmul step, or None where its right operand has batches of its own."""
    products = [e for e in body.eqns if e.op == "matmul"]
    left = products[0].ins[0].type
    depth, rows = left.shape[-1], math.prod(products[0].out.type.shape[:-1])
    if not depth or not rows or any(math.prod(p.ins[1].type.shape[:-2]) > 1 for p in products):
        return None
    if math.prod(left.shape[:-1]) != rows or _has_late_folds(body, products):
        return None
    width = panel_width(limits)
    layouts = _layouts(body, products, width)
    strip = strip_rows(rows, limits)
    is_tall = rows > strip
    run = QUANTISED_RUN if any(_is_made_of_codes(body, p) for p in products) else RUN
    while depth % run:
        run //= 2
    bytes_left = limits.workgroup_nbytes - strip * width * 4 * len(products)
    stages_left = not is_tall and strip * depth * 4 <= bytes_left // 2
    stages_right = is_tall and not all(_is_ready(body, p, layouts) for p in products)
    stages_right = stages_right and depth * width * 4 <= bytes_left
    scratch: tuple[Scratch, ...] = ()
    if not stages_left:
        scratch = (Scratch("f32", -(-rows // strip) * strip * depth),)
    numbers = {
        "lanes": limits.vector, "panel": width, "strip": strip, "run": run,
        "stage_left": int(stages_left), "stage_right": int(stages_right),
        "groups": GROUPS_A_THREAD * limits.cores,
    }  # fmt: skip
    packed = sum(x.kind != "row_major" for x in layouts)
    reason = f"{rows} x {depth}, strips of {strip} rows by panels of {width}; {packed} packed"
    return Choice(Schedule("panels", tuple(sorted(numbers.items()))), layouts, scratch, reason)


def panel_width(limits: DeviceLimits) -> int:
    """Columns of a panel."""
    return PANEL_VECTORS * limits.vector


def strip_rows(rows: int, limits: DeviceLimits) -> int:
    """Rows of a strip: as many as the vector registers hold sums for, evened out over the strips.
    32 registers where vectors hold 16 lanes (AVX-512), else 16."""
    registers = 32 if limits.vector >= 16 else 16
    most = max(1, (registers - SPARE_REGISTERS) // PANEL_VECTORS)
    most -= most % 2 if most > 2 else 0
    strips = -(-rows // most)
    return -(-rows // strips)


def _layouts(body: Graph, products: list[Eqn], width: int) -> tuple[Layout, ...]:
    """Panels for each Weight whose one axis is the columns of every product that reads it."""
    found: dict[int, set[int | None]] = {}
    for product in products:
        columns_axes(body, product.ins[1], found)
    elsewhere = _read_elsewhere(body, products)
    out: list[Layout] = []
    for i in body.inputs:
        axes = found.get(i.var.id, set[int | None]())
        axis = next(iter(axes)) if len(axes) == 1 else None
        is_matrix = len(i.var.type.shape) >= 2 and isinstance(i.storage, Weight)
        is_free = is_matrix and i.var.id not in elsewhere
        if is_free and axis is not None and axis != ANOTHER_WAY:
            out.append(Layout("panels", (axis, width)))
        else:
            out.append(Layout())
    return tuple(out)


def _read_elsewhere(body: Graph, products: list[Eqn]) -> set[int]:
    """Ids of values that are read to make something else than right operands, too."""
    right = set[int]()
    for product in products:
        right |= _made_of(body, product.ins[1])
    found = {v.id for v in body.outputs} | {p.ins[0].id for p in products}
    for eqn in body.eqns:
        if eqn not in products and not all(o.id in right for o in eqn.outs):
            found |= {v.id for v in eqn.ins}
    return found


def is_in_panels(body: Graph, product: Eqn, layouts: tuple[Layout, ...]) -> bool:
    """Every input of the right operand that differs by column is packed, so that the columns that
    fill the last panel can be read."""
    found: dict[int, set[int | None]] = {}
    columns_axes(body, product.ins[1], found)
    return all(
        found.get(i.var.id, {None}) == {None} or layout.kind == "panels"
        for i, layout in zip(body.inputs, layouts, strict=True)
    )


def _made_of(body: Graph, var: Var) -> set[int]:
    """Ids of a value and of all that it is made of."""
    need = {var.id}
    for eqn in reversed(body.eqns):
        if any(v.id in need for v in eqn.outs):
            need |= {v.id for v in eqn.ins}
    return need


def columns_axes(body: Graph, var: Var, found: dict[int, set[int | None]]) -> None:
    """For each input that `var` [.., k, n] is made of, the axis that its columns are, whole and in
    order; ANOTHER_WAY where it differs by column otherwise, None where it doesn't."""
    makers = {v.id: e for e in body.eqns for v in e.outs}
    stack: list[tuple[Var, int | None]] = [(var, len(var.type.shape) - 1)]
    seen: set[tuple[int, int | None]] = set()
    while stack:
        v, axis = stack.pop()
        if (v.id, axis) in seen:
            continue
        seen.add((v.id, axis))
        eqn = makers.get(v.id)
        if eqn is None:
            found.setdefault(v.id, set()).add(axis)
            continue
        for operand in eqn.ins:
            stack.append((operand, _axis_before(eqn, operand, axis)))


def _axis_before(eqn: Eqn, operand: Var, axis: int | None) -> int | None:
    """The operand's axis that is the result's axis, as `columns_axes` says."""
    if axis is None or axis == ANOTHER_WAY:
        return axis
    old, new = operand.type.shape, eqn.outs[0].type.shape
    if eqn.op == "transpose":
        return ints_attr(eqn, "perm")[axis]
    if eqn.op == "reshape":
        return _reshaped_axis(old, new, axis)
    if eqn.op in _MOVES:
        return ANOTHER_WAY
    own = axis - (len(new) - len(old))
    if own < 0 or (old[own] == 1 and new[axis] != 1):
        return None
    return own if old[own] == new[axis] else ANOTHER_WAY


def _reshaped_axis(old: tuple[int, ...], new: tuple[int, ...], axis: int) -> int:
    for before, after in shape_groups(old, new):
        if axis not in after:
            continue
        wide = [i for i in before if old[i] != 1]
        only = all(new[i] == 1 for i in after if i != axis)
        return wide[0] if len(wide) == 1 and only else ANOTHER_WAY
    return ANOTHER_WAY


def _has_late_folds(body: Graph, products: list[Eqn]) -> bool:
    """What follows the products reads a fold of the rows."""
    stops = {p.out.id for p in products}
    need = {v.id for v in body.outputs}
    for eqn in reversed(body.eqns):
        made = {v.id for v in eqn.outs}
        if made & need and not made & stops:
            if eqn.op == "reduce":
                return True
            need |= {v.id for v in eqn.ins}
    return False


def _is_made_of_codes(body: Graph, product: Eqn) -> bool:
    """The right operand is cast from integers."""
    need = _made_of(body, product.ins[1])
    return any(
        e.op == "cast" and is_integer(e.ins[0].type.dtype) and e.outs[0].id in need
        for e in body.eqns
    )


def _is_ready(body: Graph, product: Eqn, layouts: tuple[Layout, ...]) -> bool:
    """The right operand is a packed f32 input, at most transposed or reshaped."""
    makers = {v.id: e for e in body.eqns for v in e.outs}
    var = product.ins[1]
    while var.id in makers:
        eqn = makers[var.id]
        if eqn.op not in ("transpose", "reshape"):
            return False
        var = eqn.ins[0]
    at = [i.var.id for i in body.inputs].index(var.id)
    return var.type.dtype == "f32" and layouts[at].kind == "panels"
