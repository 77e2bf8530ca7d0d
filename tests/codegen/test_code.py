"""Keys of emitted code."""

from dataclasses import replace

from poot.codegen.code import code_key
from poot.codegen.kir.build import KernelBuilder
from poot.codegen.kir.nodes import Kernel
from poot.limits import PROFILES


def kernel(value: float) -> Kernel:
    k = KernelBuilder("fill", threads=4)
    k.param("y", "f32", 4, "w")
    k.store("y", k.lane(), value)
    return k.kernel()


def test_equal_kernels_have_one_key_and_others_another():
    limits = PROFILES["h200"]
    assert code_key(kernel(1.0), limits) == code_key(kernel(1.0), limits)
    assert code_key(kernel(1.0), limits) != code_key(kernel(2.0), limits)


def test_the_architecture_is_part_of_the_key():
    limits = PROFILES["h200"]
    assert code_key(kernel(1.0), limits) != code_key(kernel(1.0), replace(limits, arch="sm_80"))
