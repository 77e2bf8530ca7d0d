"""Copies through tensor maps: boxes, rings, and who lets go of a slot."""

from poot.codegen.gen.attention.tiled.copies import KEYS, QUERIES, VALUES
from poot.codegen.kir.nodes import Ins
from poot.codegen.kir.sim.run import walk
from tests.support.tiled import call_of, prefill


def test_tensor_maps_are_of_the_operands_with_heads_as_one_axis():
    call = call_of(prefill(200, 300, 128, batch=2))
    assert [b.box for b in call.kernel.blobs] == [(64, 128, 1), (64, 128, 1), (64, 64, 1)]
    assert {b.swizzle for b in call.kernel.blobs} == {"128B"}
    views = dict(zip((b.name for b in call.kernel.blobs), call.maps, strict=True))
    assert views["mk"][0] == ("in", 1)
    assert views["mk"][1].dims == (128, 300, 2)
    assert views["mq"][1].dims == (128, 200, 4)
    assert views["mq"][1].strides == (1, 128, 200 * 128)


def test_a_slot_is_empty_when_every_subgroup_of_the_consumers_let_go():
    kernel = call_of(prefill(200, 300, 128)).kernel
    inits = {
        str(s.attr("mem")): s.attr("count")
        for s in walk(kernel.body)
        if isinstance(s, Ins) and s.op == "mbar_init"
    }
    assert inits == {
        "kfull": 1, "kempty": 8, "vfull": 1, "vempty": 8, "qfull": 1, "qempty": 4,
        "nfull": 1, "nempty": 10,
    }  # fmt: skip


def test_workgroup_memory_holds_two_tiles_of_each_and_two_blocks_queries():
    kernel = call_of(prefill(200, 300, 128)).kernel
    sizes = {s.name: s.elems for s in kernel.shared}
    assert sizes[KEYS.array] == sizes[VALUES.array] == 2 * 128 * 128
    assert sizes[QUERIES] == 2 * 2 * 64 * 128
