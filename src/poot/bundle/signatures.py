"""An entry point's inputs, guards and outputs' nesting, out of a manifest."""

from __future__ import annotations

from poot.bundle.fields import Fields
from poot.bundle.residents import parse_type
from poot.errors import TypeRuleError
from poot.failures import Guard
from poot.ir.graph import Input, Slot, State, Storage, Var, Weight
from poot.ir.tree import LEAF, NONE, Tree
from poot.launch_lists import Signature
from poot.slots import check_slot_type

_I64 = 1 << 63
_MOST_DEPTH = 32


def parse_signature(f: Fields, outputs: int, records: int) -> Signature:
    """Raises FormatError. As many leaves as `outputs`, and as many guards as `records`."""
    inputs = tuple(_input(row, n) for n, row in enumerate(f.objects("inputs")))
    names = [i.name for i in inputs]
    f.need(len(set(names)) == len(names), "an input stands twice")
    written = f.texts("written")
    states = {i.name for i in inputs if isinstance(i.storage, State)}
    f.need(set(written) <= states, "written needs names of States")
    guards = tuple(map(_guard, f.objects("guards")))
    f.need(len(guards) == records, f"{len(guards)} guards, and {records} records")
    tree = None if f.is_null("tree") else _tree(f, "tree", 0)
    leaves = outputs if tree is None else tree.leaves
    f.need(leaves == outputs, f"tree has {leaves} leaves, and there are {outputs} outputs")
    return Signature(inputs, written, guards, tree)


def _input(f: Fields, n: int) -> Input:
    made = Input(Var(n, parse_type(f)), f.text("name"), _storage(f))
    if isinstance(made.storage, Slot):
        try:
            check_slot_type(made.storage, made.var.type, made.name)
        except TypeRuleError as e:
            f.refuse(e.message)
    return made


def _storage(f: Fields) -> Storage:
    kind = f.choice("storage", ("weight", "state", "slot"))
    if kind == "weight":
        return Weight()
    if kind == "state":
        return State()
    return Slot(f.text("kind", 100), _bounds(f, "range"))


def _bounds(f: Fields, name: str) -> tuple[int, int] | None:
    if f.is_null(name):
        return None
    bounds = f.integers(name, -_I64, _I64)
    f.need(len(bounds) == 2, f"{name} needs two bounds: {len(bounds)}")
    return bounds[0], bounds[1]


def _guard(f: Fields) -> Guard:
    shape = parse_type(Fields(f.where, {"dtype": "bool", "shape": f.items("shape")})).shape
    return Guard(f.text("op"), shape, f.text("loc"), f.text("needed"), _bounds(f, "bounds"))


def _tree(f: Fields, name: str, depth: int) -> Tree:
    f.need(depth < _MOST_DEPTH, f"a tree is at most {_MOST_DEPTH} deep")
    if f.values.get(name) == "leaf":
        return LEAF
    t = f.object(name)
    kind = t.choice("kind", ("none", "tuple", "list", "dict"))
    if kind == "none":
        return NONE
    keys: list[str | int] = []
    for key in t.items("keys"):
        if not isinstance(key, (str, int)) or isinstance(key, bool):
            t.refuse("keys needs texts and integers")
        keys.append(key)
    t.need(len(set(keys)) == len(keys), "a key stands twice")
    rows = t.items("children")
    t.need(len(rows) == len(keys), f"{len(keys)} keys and {len(rows)} children")
    children = tuple(_tree(Fields(t.where, {"child": row}), "child", depth + 1) for row in rows)
    return Tree(kind, tuple(keys), children)
