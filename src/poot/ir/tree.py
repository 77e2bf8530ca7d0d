"""Nested arguments and results as a flat list of named leaves, and back.

Tuples, lists, dicts, named tuples and dataclasses nest; None holds nothing; all else is a leaf.
Leaves come in the order written (a dict's own order, a dataclass's field order). A leaf's name is
its path, dotted: `w.layers.0.q`."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import cast

from poot.errors import TraceError


@dataclass(frozen=True, slots=True)
class Tree:
    """How leaves nest. `kind` is "leaf", "none", "tuple", "list", "dict", "named" or "record";
    `keys` are the parts of the children's names; `type` is the class of a named tuple or a
    dataclass."""

    kind: str
    keys: tuple[str | int, ...] = ()
    children: tuple[Tree, ...] = ()
    type: type | None = None

    @property
    def leaves(self) -> int:
        """How many leaves there are."""
        return 1 if self.kind == "leaf" else sum(child.leaves for child in self.children)


LEAF = Tree("leaf")
NONE = Tree("none")


def join(prefix: str, key: str | int) -> str:
    """The dotted name of the child `key` of what is called `prefix`."""
    return f"{prefix}.{key}" if prefix else str(key)


def _parts(value: object) -> tuple[str, tuple[str | int, ...], tuple[object, ...]] | None:
    """(kind, keys, children) of a node, or None for a leaf."""
    if isinstance(value, dict):
        items = cast("dict[object, object]", value)  # isinstance says no more
        keys: list[str | int] = []
        for key in items:
            if not isinstance(key, (str, int)) or isinstance(key, bool):
                raise TraceError(f"needs str or int keys in a nested dict: key={key!r}")
            keys.append(key)
        return "dict", tuple(keys), tuple(items.values())
    if isinstance(value, tuple):
        children = cast("tuple[object, ...]", value)  # isinstance says no more
        fields = getattr(type(children), "_fields", None)
        if fields is not None:
            return "named", tuple(map(str, fields)), children
        return "tuple", tuple(range(len(children))), children
    if isinstance(value, list):
        elements = tuple(cast("list[object]", value))  # isinstance says no more
        return "list", tuple(range(len(elements))), elements
    return None


def _is_record(value: object, leaf_types: tuple[type, ...]) -> bool:
    is_instance = dataclasses.is_dataclass(value) and not isinstance(value, type)
    return is_instance and not isinstance(value, leaf_types)


def _walk(
    value: object, name: str, leaf_types: tuple[type, ...], out: list[tuple[str, object]]
) -> Tree:
    if value is None:
        return NONE
    if isinstance(value, leaf_types):
        out.append((name, value))
        return LEAF
    parts = _parts(value)
    if parts is None and _is_record(value, leaf_types):
        fields = dataclasses.fields(value)  # pyright: ignore[reportArgumentType] - checked above
        keys = tuple(f.name for f in fields if f.init)
        parts = ("record", keys, tuple(getattr(value, key) for key in keys))
    if parts is None:
        out.append((name, value))
        return LEAF
    kind, keys, children = parts
    nested = tuple(
        _walk(child, join(name, key), leaf_types, out)
        for key, child in zip(keys, children, strict=True)
    )
    return Tree(kind, keys, nested, type(value) if kind in ("named", "record") else None)


def flatten(
    value: object, prefix: str = "", leaf_types: tuple[type, ...] = ()
) -> tuple[list[tuple[str, object]], Tree]:
    """([(dotted name, leaf)], tree). Names begin with `prefix`. Instances of `leaf_types` are
    leaves even where they are dataclasses. Raises TraceError on a dict key that is no str or
    int."""
    out: list[tuple[str, object]] = []
    tree = _walk(value, prefix, leaf_types, out)
    return out, tree


def unflatten(tree: Tree, leaves: Sequence[object]) -> object:
    """The nested value that `flatten` took apart, with other leaves in the same order."""
    if tree.kind == "leaf" and len(leaves) == 1:
        return leaves[0]
    assert len(leaves) == tree.leaves, (len(leaves), tree.leaves)
    return _rebuild(tree, iter(leaves))


def _rebuild(tree: Tree, take: Iterator[object]) -> object:
    if tree.kind == "leaf":
        return next(take)
    if tree.kind == "none":
        return None
    children = [_rebuild(child, take) for child in tree.children]
    if tree.kind == "list":
        return children
    if tree.kind == "dict":
        return dict(zip(tree.keys, children, strict=True))
    if tree.type is None:
        return tuple(children)
    if tree.kind == "named":
        return tree.type(*children)
    return tree.type(**dict(zip(map(str, tree.keys), children, strict=True)))
