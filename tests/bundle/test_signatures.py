"""What entry points take and give, out of a manifest."""

from __future__ import annotations

import dataclasses

import pytest

import poot
from poot.bundle.fields import Fields
from poot.bundle.signatures import parse_signature
from poot.bundle.write import bundle_members
from poot.errors import FormatError
from poot.ir.tree import Tree
from tests.support.bundles import changed, manifest_of, program, read, whole

pytestmark = pytest.mark.quick


def test_a_signature_comes_back_as_it_was():
    got, want = read(whole()).lists.signatures["main"], program().lists().signatures["main"]
    assert [(i.name, i.var.type, i.storage) for i in got.inputs] == [
        (i.name, i.var.type, i.storage) for i in want.inputs
    ]
    assert (got.written, got.guards, got.tree) == (want.written, want.guards, want.tree)


def main(m):
    return m["entries"][0]


def named(m, name):
    return next(i for i in main(m)["inputs"] if i["name"] == name)


def deep(levels):
    tree: object = "leaf"
    for _ in range(levels):
        tree = {"kind": "list", "keys": [0], "children": [tree]}
    return tree


@pytest.mark.parametrize(
    "change, why",
    [
        (lambda m: main(m)["inputs"].append(main(m)["inputs"][0]), "stands twice"),
        (lambda m: main(m).update(written=["w.a"]), "names of States"),
        (lambda m: main(m).update(guards=[]), "0 guards, and 1 records"),
        (lambda m: main(m).update(tree="leaf"), "1 leaves, and there are 2"),
        (lambda m: main(m).update(tree=deep(400)), "deep"),
        (lambda m: main(m).update(tree={"kind": "object", "keys": [], "children": []}), "one of"),
        (lambda m: main(m).update(tree={"kind": "list", "keys": [0, 0], "children": []}), "twice"),
        (lambda m: main(m).update(tree={"kind": "list", "keys": [0], "children": []}), "children"),
        (lambda m: named(m, "pos").update(range=[4, 2]), "lo < hi"),
        (lambda m: named(m, "pos").update(range=[1]), "two bounds"),
        (lambda m: named(m, "pos").update(dtype="f32"), "kind pos needs i32"),
        (lambda m: named(m, "pos").update(storage="const"), "one of weight"),
        (lambda m: main(m)["guards"][0].update(shape=[-1]), "shape needs an integer"),
    ],
)
def test_what_does_not_fit_is_refused(change, why):
    with pytest.raises(FormatError, match=why):
        read(changed(change))


def test_what_has_a_class_of_the_users_comes_back_as_a_dict():
    @dataclasses.dataclass
    class Out:
        a: object
        b: object

    def give(x):
        return Out(x + 1, [x * 2, None])

    made = poot.compile(poot.trace(give, (poot.slot((2,), "f32"),)), "cpu-avx2")
    (entry,) = manifest_of_members(bundle_members(made))["entries"]
    tree = parse_signature(Fields("e", entry), 2, 0).tree
    assert isinstance(tree, Tree)
    assert (tree.kind, tree.keys, tree.children[1].kind) == ("dict", ("a", "b"), "list")


def manifest_of_members(members):
    from poot.bundle.archive import pack_archive

    return manifest_of(pack_archive(members))
