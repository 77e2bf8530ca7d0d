"""What a launch asks, kept through the disk cache."""

from __future__ import annotations

from poot.codegen.attributes import PLAIN, Attributes, TensorView
from poot.codegen.code import Code
from poot.codegen.gen.lowered import KernelCall, Lowered
from poot.codegen.kir.nodes import Blob, Kernel, Param
from poot.codegen.stored import decode, encode


def test_a_plain_launch_asks_nothing():
    assert Attributes() == PLAIN
    assert (PLAIN.overlap, PLAIN.cluster, PLAIN.is_resident) == (False, (1, 1, 1), False)


def test_attributes_and_maps_come_back_from_the_cache():
    blobs = (Blob("m", dtype="bf16", box=(64, 8), swizzle="128B"),)
    kernel = Kernel("k", (Param("x", "bf16", 1024, "r"),), (), blobs, (), 32, None, ())
    view = TensorView((64, 16), (1, 64))
    asked = Attributes(overlap=True, cluster=(2, 1, 1), is_resident=True)
    call = KernelCall(kernel, (4, 1, 1), (("in", 0),), (), asked, ((("in", 0), view),))
    code = Code("k", "ptx", b"bytes", "text", "key", kernel)
    assert decode(encode(Lowered((call,)), (code,)))[0] == Lowered((call,))
