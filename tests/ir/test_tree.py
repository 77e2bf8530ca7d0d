"""Nested values as named leaves, and back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import pytest

from poot.errors import TraceError
from poot.ir.tree import LEAF, NONE, Tree, flatten, unflatten


@dataclass(frozen=True, slots=True)
class Layer:
    q: object
    k: object


class Pair(NamedTuple):
    first: object
    second: object


NESTED = {"layers": [Layer(1, 2), Layer(3, None)], "pair": Pair(4, (5, 6)), "none": None, 7: []}


def test_names_are_paths_in_the_order_written():
    leaves, _ = flatten(NESTED, "w")
    assert leaves == [
        ("w.layers.0.q", 1),
        ("w.layers.0.k", 2),
        ("w.layers.1.q", 3),
        ("w.pair.first", 4),
        ("w.pair.second.0", 5),
        ("w.pair.second.1", 6),
    ]


def test_a_tree_rebuilds_what_was_flattened():
    leaves, tree = flatten(NESTED)
    assert unflatten(tree, [leaf for _, leaf in leaves]) == NESTED


def test_other_leaves_take_the_same_places():
    _, tree = flatten(NESTED)
    rebuilt = unflatten(tree, "abcdef")
    assert rebuilt == {
        "layers": [Layer("a", "b"), Layer("c", None)],
        "pair": Pair("d", ("e", "f")),
        "none": None,
        7: [],
    }


def test_a_lone_leaf_has_the_prefix_for_its_name():
    assert flatten(5, "x") == ([("x", 5)], LEAF)
    assert flatten(None, "x") == ([], NONE)


def test_a_dataclass_may_be_a_leaf():
    leaves, tree = flatten([Layer(1, 2)], "w", (Layer,))
    assert leaves == [("w.0", Layer(1, 2))]
    assert tree.leaves == 1


def test_a_class_is_a_leaf_and_not_a_record():
    assert flatten(Layer)[1] == LEAF


def test_trees_are_hashable_and_equal_by_structure():
    _, one = flatten({"a": (1, 2)})
    _, two = flatten({"a": (3, 4)})
    _, other = flatten({"a": [1, 2]})
    assert one == two
    assert hash(one) == hash(two)
    assert one != other


def test_a_dict_key_that_is_no_word_or_number_is_refused():
    with pytest.raises(TraceError, match=r"str or int keys in a nested dict: key=1.5"):
        flatten({1.5: 1})
    with pytest.raises(TraceError, match="key=True"):
        flatten({True: 1})


def test_as_many_leaves_as_places_are_asked_for():
    with pytest.raises(AssertionError):
        unflatten(Tree("tuple", (0, 1), (LEAF, LEAF)), [1])
