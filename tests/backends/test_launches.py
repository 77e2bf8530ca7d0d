"""The checks and the orders of a launch list, without a device."""

from __future__ import annotations

import struct
from dataclasses import replace

import pytest

from poot.backends.base import BufferRef, Launch
from poot.backends.launches import (
    CLUSTER,
    MAPS,
    RESIDENT,
    binding_nbytes,
    check_launch,
    pack_immediates,
    padded,
    refuse_more,
    touches,
    waits,
)
from poot.codegen.attributes import Attributes, TensorView
from poot.codegen.kir.nodes import Blob, Imm, Kernel, Param
from poot.errors import BackendUnavailable, BindingLimit, GridLimit, LaunchError
from poot.limits import profile

LIMITS = profile("webgpu-baseline")
SIZES = {"arena": 4096, "weights": 1 << 28}


def kernel(access: str = "rw", imms: tuple[str, ...] = ()) -> Kernel:
    """Reads x, touches y as `access` says."""
    params = (Param("x", "f32", 16, "r"), Param("y", "f32", 16, access))
    made = tuple(Imm(f"i{n}", dtype) for n, dtype in enumerate(imms))
    return Kernel("k", params, made, (), (), 64, None, ())


def launch(x: BufferRef, y: BufferRef, grid: tuple[int, int, int] = (1, 1, 1)) -> Launch:
    return Launch(0, grid, (x, y))


def at(offset: int, nbytes: int = 256, space: str = "arena") -> BufferRef:
    return BufferRef(space, offset, nbytes)


@pytest.mark.parametrize("nbytes, found", [(0, 16), (1, 16), (16, 16), (17, 32), (66, 80)])
def test_allocations_are_whole_quanta_and_never_empty(nbytes, found):
    assert padded(nbytes) == found


def test_a_right_launch_passes():
    check_launch(launch(at(0), at(256), (65535, 0, 1)), kernel(), SIZES, LIMITS)


@pytest.mark.parametrize(
    "bad, error, words",
    [
        (launch(at(0), at(256), (65536, 1, 1)), GridLimit, "65536 groups on axis 0"),
        (launch(at(0), at(256), (1, 1, -1)), GridLimit, "-1 groups on axis 2"),
        (launch(at(0), at(4096)), LaunchError, r"k y: bytes \[4096, 4352\) .* has 4096"),
        (launch(at(-256), at(0)), LaunchError, r"k x: bytes \[-256, 0\)"),
        (launch(at(128), at(0)), LaunchError, "offset 128 of arena is no multiple of 256"),
        (launch(at(0, space="heap"), at(0)), LaunchError, "no buffer heap: arena, weights"),
        (launch(at(0, (128 << 20) + 4, "weights"), at(0)), BindingLimit, "134217732 bytes"),
        (Launch(0, (1, 1, 1), (at(0),)), LaunchError, r"2 buffers .*: got 1 and 0"),
    ],
)  # fmt: skip
def test_a_wrong_launch_is_refused_with_its_numbers(bad, error, words):
    with pytest.raises(error, match=words):
        check_launch(bad, kernel(), SIZES, LIMITS)


CLUSTERS = Attributes(cluster=(2, 1, 1))
ALL = frozenset({CLUSTER, MAPS, RESIDENT})


@pytest.mark.parametrize(
    "asked, words",
    [(CLUSTERS, "clusters of groups"), (Attributes(is_resident=True), "resident all at once")],
)
def test_what_a_device_cannot_do_for_a_launch_is_refused(asked, words):
    made = replace(launch(at(0), at(256), (2, 1, 1)), attributes=asked)
    with pytest.raises(LaunchError, match=f"kernel k asks .*{words}.*webgpu-baseline has none"):
        check_launch(made, kernel(), SIZES, LIMITS)
    check_launch(made, kernel(), SIZES, LIMITS, ALL)


def test_a_launch_that_may_overlap_runs_anywhere():
    made = replace(launch(at(0), at(256)), attributes=Attributes(overlap=True))
    check_launch(made, kernel(), SIZES, LIMITS)


def test_a_grid_is_whole_clusters():
    made = replace(launch(at(0), at(256), (3, 1, 1)), attributes=CLUSTERS)
    with pytest.raises(GridLimit, match=r"clusters of \(2, 1, 1\) groups: its grid \(3, 1, 1\)"):
        check_launch(made, kernel(), SIZES, LIMITS, ALL)


@pytest.mark.parametrize(
    "view, words",
    [
        (TensorView((8, 8), (1, 8)), ""),
        (TensorView((8, 9), (1, 8)), "leaves its 256 bytes"),
        (TensorView((8, 0), (1, 8)), "leaves its 256 bytes"),
        (TensorView((8,), (1,)), "needs 2 extents and strides"),
        (TensorView((8, 8), (2, 16)), "the first stride 1"),
    ],
)
def test_a_tensor_map_views_a_tensor_inside_its_bytes(view, words):
    mapped = replace(kernel(), blobs=(Blob("m", dtype="f32", box=(8, 4)),))
    made = replace(launch(at(0), at(256)), maps=((at(512), view),))
    if not words:
        check_launch(made, mapped, SIZES, LIMITS, ALL)
        with pytest.raises(LaunchError, match="kernel k asks tensor maps"):
            check_launch(made, mapped, SIZES, LIMITS)
        return
    with pytest.raises(LaunchError, match=f"kernel k m: .*{words}"):
        check_launch(made, mapped, SIZES, LIMITS, ALL)
    with pytest.raises(LaunchError, match="takes 1 tensor maps: got 0"):
        check_launch(replace(made, maps=()), mapped, SIZES, LIMITS, ALL)


def test_a_binding_ends_on_a_quantum_inside_its_buffer():
    assert binding_nbytes(at(0, 66), 4096, LIMITS) == 80
    assert binding_nbytes(at(4080, 4), 4096, LIMITS) == 16
    assert binding_nbytes(at(0, 128 << 20, "weights"), 1 << 28, LIMITS) == 128 << 20


def test_immediates_are_packed_in_order():
    packed = pack_immediates(kernel(imms=("i32", "f32", "u32")), (-1, 0.5, 1 << 31))
    assert packed == struct.pack("<ifI", -1, 0.5, 1 << 31) + b"\0" * 4


@pytest.mark.parametrize("dtype, value", [("i32", 1 << 31), ("u32", -1), ("i32", 0.5)])
def test_an_immediate_that_does_not_fit_is_refused(dtype, value):
    with pytest.raises(LaunchError, match="kernel k immediates"):
        pack_immediates(kernel(imms=(dtype,)), (value,))


def test_a_kernel_says_what_it_writes():
    x, y = touches(launch(at(0), at(256)), kernel("w"))
    assert (x.writes, y.writes) == (False, True)
    assert (y.space, y.start, y.stop) == ("arena", 256, 512)


@pytest.mark.parametrize(
    "first, second, found",
    [
        ((at(0), at(256)), (at(256), at(512)), True),  # reads what was written
        ((at(0), at(256)), (at(512), at(0)), True),  # writes what was read
        ((at(0), at(256)), (at(0), at(256)), True),  # writes what was written
        ((at(0), at(256)), (at(0), at(512)), False),  # shares only what is read
        ((at(0), at(256)), (at(256, space="weights"), at(512)), False),  # another buffer
        ((at(0), at(256, 257)), (at(512), at(768)), True),  # overlaps by a byte
    ],
)
def test_a_launch_waits_where_bytes_it_shares_are_written(first, second, found):
    assert waits([launch(*first), launch(*second)], [kernel()]) == [False, found]


def test_a_wait_covers_everything_before_it():
    a, b, c = launch(at(0), at(256)), launch(at(0), at(512)), launch(at(512), at(768))
    again = launch(at(256), at(1024))
    assert waits([a, b, c, again], [kernel()]) == [False, False, True, False]


def test_a_device_may_be_narrowed_but_not_widened():
    there = profile("lavapipe")
    refuse_more(replace(there, threads=1, subgroup=0, has_i64=False), there)
    more: tuple[tuple[dict[str, int], str], ...] = (
        ({"threads": 2048}, "asks threads 2048: lavapipe has 1024"),
        ({"has_i64": True}, "asks has_i64 1: lavapipe has 0"),
        ({"subgroup": 32}, "asks subgroups of 32: lavapipe has 8"),
    )
    for change, words in more:
        with pytest.raises(BackendUnavailable, match=words):
            refuse_more(replace(there, **change), there)
