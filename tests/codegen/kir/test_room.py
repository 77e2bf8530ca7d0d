"""What a kernel asks of a device, refused with both numbers."""

from dataclasses import replace

import pytest

from poot.codegen.kir.build import KernelBuilder
from poot.codegen.kir.nodes import Kernel
from poot.codegen.kir.room import need_at_most, need_buffers, need_plain, need_room
from poot.errors import BindingLimit, CapabilityError
from poot.limits import profile

LIMITS = replace(profile("lavapipe"), threads=64, workgroup_nbytes=1024, storage_buffers=2)


def kernel(threads: int = 64, floats: int = 0, buffers: int = 1, subgroup: int | None = None
           ) -> Kernel:  # fmt: skip
    k = KernelBuilder("small", threads, subgroup=subgroup)
    for n in range(buffers):
        k.param(f"p{n}", "f32", 1, "r")
    if floats:
        k.shared("s", "f32", floats)
    return k.kernel()


def test_a_kernel_that_just_fits_is_taken():
    made = kernel(64, 256, 2)
    need_room(made, LIMITS)
    need_buffers(made, LIMITS)
    need_plain(made, "spirv", LIMITS)
    need_at_most(made, "lanes", 64, 64, LIMITS)


def test_what_is_over_says_what_is_asked_and_what_there_is():
    with pytest.raises(CapabilityError, match=r"kernel small asks 65 lanes: .* has 64"):
        need_room(kernel(65), LIMITS)
    with pytest.raises(CapabilityError, match=r"asks 1028 bytes of workgroup memory: .* has 1024"):
        need_room(kernel(64, 257), LIMITS)
    with pytest.raises(BindingLimit, match=r"kernel small binds 3 buffers: .* has 2"):
        need_buffers(kernel(buffers=3), LIMITS)
    with pytest.raises(CapabilityError, match=r"written for subgroups of 128: .* has"):
        need_plain(kernel(128, subgroup=128), "spirv", LIMITS)
