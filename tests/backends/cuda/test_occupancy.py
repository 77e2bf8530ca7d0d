"""Groups resident on a multiprocessor, against what the driver's own count gives on an H200."""

from __future__ import annotations

import pytest

from poot.backends.cuda.occupancy import Multiprocessor, resident_groups
from poot.codegen.kir.build import KernelBuilder
from tests.support.counting import opened_card

# Compute capability 9.0 (CUDA C++ Programming Guide, technical specifications).
H200 = Multiprocessor(2048, 65536, 228 << 10, 1 << 10, 32)


@pytest.mark.parametrize(
    "threads, registers, shared_nbytes, groups",
    [
        (32, 16, 0, 32),  # as many groups as there may be
        (1024, 32, 0, 2),  # threads
        (256, 64, 0, 4),  # registers: 64 * 32 a warp, 8 warps in each part
        (256, 255, 0, 1),
        (256, 168, 0, 1),  # 12 warps, of which a group takes 8
        (128, 168, 0, 3),
        (96, 168, 0, 3),  # three warps take a place in each of the four parts
        (256, 32, 227 << 10, 1),  # workgroup memory: all that a group may have
        (256, 32, 113 << 10, 2),
        (256, 32, (113 << 10) + 1, 1),
        (1024, 65, 0, 0),
    ],
)
def test_the_scarcest_of_four_things_decides(threads, registers, shared_nbytes, groups):
    assert resident_groups(H200, threads, registers, shared_nbytes) == groups


@pytest.mark.cuda
@pytest.mark.parametrize("threads", [32, 96, 128, 256, 1024])
@pytest.mark.parametrize("words", [1, 3000, 20000, 50000])
def test_both_providers_count_alike(threads: int, words: int):
    k = KernelBuilder("takes_shared", threads)
    s = k.shared("s", "i32", words)
    y = k.param("y", "i32", threads, "rw")
    k.store(s, k.lane() % words, k.load(y, k.lane()))
    k.barrier()
    k.store(y, k.lane(), k.load(s, k.lane() % words))
    found: list[int] = []
    for provider in ("cuda-bindings", "pycuda"):
        device = opened_card(provider)
        loaded = device.load([device.emit(k.kernel())])
        found.append(device.resources(loaded)[0].resident)
        del loaded
        device.close()
    assert 0 < found[1] <= found[0]
