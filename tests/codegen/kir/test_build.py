"""The builder: what it makes once, and how far out."""

from __future__ import annotations

from poot.codegen.kir.build import KernelBuilder
from poot.codegen.kir.nodes import For, If, Ins
from poot.codegen.kir.verify import verify


def builder() -> KernelBuilder:
    k = KernelBuilder("made", threads=8)
    k.param("x", "f32", 64, "r")
    k.param("y", "f32", 64, "rw")
    return k


def names(body: tuple[object, ...]) -> list[str]:
    return [s.op if isinstance(s, Ins) else type(s).__name__ for s in body]


def test_equal_pure_instructions_and_loads_of_what_is_only_read_are_made_once():
    k = builder()
    a, b = k.load("x", k.lane()), k.load("x", k.lane())
    assert a == b
    assert a + 1.0 == b + 1.0
    assert k.load("y", k.lane()) != k.load("y", k.lane())


def test_what_a_loop_does_not_change_is_made_outside_it():
    k = builder()
    with k.for_(0, 4) as i, k.for_(0, 2):
        scale = k.load("x", k.lane() * 2) * 3.0
        k.store("y", k.lane() * 8 + i, scale)
    body = k.kernel().body
    verify(k.kernel())
    assert names(body) == ["lane", "mul", "load", "mul", "mul", "For"]
    (loop,) = [s for s in body if isinstance(s, For)]
    assert names(loop.body) == ["add", "For"]


def test_nothing_leaves_a_branch():
    k = builder()
    with k.for_(0, 4) as i, k.if_(k.lane() < i):
        k.store("y", 0, k.load("x", k.lane()))
    (loop,) = [s for s in k.kernel().body if isinstance(s, For)]
    (branch,) = [s for s in loop.body if isinstance(s, If)]
    assert names(branch.then) == ["load", "store"]


def test_a_changing_register_is_read_where_it_stands():
    k = builder()
    total = k.var(k.lit(0.0))
    with k.for_(0, 4):
        k.set(total, total + 1.0)
    (loop,) = [s for s in k.kernel().body if isinstance(s, For)]
    assert names(loop.body) == ["add", "set"]


def test_a_value_is_open_while_its_scope_is():
    k = builder()
    with k.for_(0, 4) as i:
        inner, outer = i * 2, k.lane() * 2
        assert k.is_open(inner)
    assert not k.is_open(inner)
    assert k.is_open(outer)
    assert k.is_open(k.lit(1.0))


def test_a_workgroup_array_grows_to_the_largest_that_is_needed():
    k = builder()
    k.need_shared("tile", "f32", 8)
    k.need_shared("tile", "f32", 64)
    k.need_shared("tile", "f32", 16)
    assert [s.elems for s in k.kernel().shared] == [64]
