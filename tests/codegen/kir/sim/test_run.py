"""Launches: arguments, chosen groups, the machine that is used, and whole kernels."""

from __future__ import annotations

import time

import numpy as np
import pytest

from poot.codegen.kir.sim import TensorMap, simulate
from poot.codegen.kir.sim.run import runs_as_vector
from poot.codegen.kir.text import parse, show
from poot.codegen.kir.uniform import analyse
from poot.codegen.kir.verify import verify
from poot.errors import SimulationError
from tests.support.kernels import FOLDER, kernel_of, kernel_text

pytestmark = pytest.mark.quick
COPY = "g: i32 = group_id axis=0\nl: i32 = lane\na: i32 = mul g, 4\ni: i32 = add a, l\n" + (
    "v: f32 = load x[i]\nstore y[i], v"
)
HEAD = "param x: f32[16] r align=4\nparam y: f32[16] w align=4"


def copy_kernel() -> tuple[np.ndarray, np.ndarray]:
    return np.arange(16, dtype=np.float32), np.full(16, -1, np.float32)


@pytest.mark.parametrize(
    "groups, done", [(None, [0, 1, 2, 3]), ([2], [2]), ([(3, 0, 0), 1], [1, 3]), ([], [])]
)
@pytest.mark.parametrize("in_waves", [False, True], ids=["vector", "waves"])
def test_only_the_chosen_groups_run(groups, done, in_waves):
    x, y = copy_kernel()
    stats = simulate(kernel_of(COPY, HEAD, 4), {"x": x, "y": y}, 4, groups, in_waves=in_waves)
    want = np.where(np.isin(np.arange(16) // 4, done), x, -1)
    np.testing.assert_array_equal(y, want)
    assert stats.groups == len(done)


def test_arrays_of_any_shape_are_written_in_place():
    x, y = copy_kernel()
    x, y = x.reshape(4, 4), y.reshape(2, 8)
    simulate(kernel_of(COPY, HEAD, 4), {"x": x, "y": y}, 4)
    np.testing.assert_array_equal(y.reshape(-1), x.reshape(-1))


@pytest.mark.parametrize(
    "change, said",
    [
        (lambda b: b.pop("x"), r"buffers \['y'\] for parameters \['x', 'y'\]"),
        (lambda b: b.update(z=b["x"]), "for parameters"),
        (lambda b: b.update(x=b["x"][:15]), "x needs 16 elements and the array has 15"),
        (
            lambda b: b.update(x=b["x"].astype(np.int32)),
            "x needs a contiguous f32 array, got int32",
        ),
        (lambda b: b.update(x=np.zeros(32, np.float32)[::2]), "x needs a contiguous f32 array"),
    ],
)
def test_wrong_buffers_are_refused(change, said):
    x, y = copy_kernel()
    given = {"x": x, "y": y}
    change(given)
    with pytest.raises(SimulationError, match=said):
        simulate(kernel_of(COPY, HEAD, 4), given, 4)


def test_wrong_groups_immediates_and_maps_are_refused():
    x, y = copy_kernel()
    kernel, given = kernel_of(COPY, HEAD, 4), {"x": x, "y": y}
    with pytest.raises(SimulationError, match=r"group \(4, 0, 0\) is not in grid \(4, 1, 1\)"):
        simulate(kernel, given, 4, [(4, 0, 0)])
    with pytest.raises(SimulationError, match="0 immediates, 1 given"):
        simulate(kernel, given, 4, imms=(1,))
    wide = kernel_of("l: i32 = subgroup_lane", "", 32, 32)
    with pytest.raises(SimulationError, match="written for subgroups of 32, not 16"):
        simulate(wide, {}, 1, subgroup=16)
    blob = HEAD + "\nblob m: bytes[128] align=64 dtype=f32 box=(4, 2)"
    with pytest.raises(SimulationError, match="blob m has no tensor map over a buffer"):
        simulate(kernel_of(COPY, blob, 4), given, 4)
    with pytest.raises(SimulationError, match="the tensor map of m has to fit its box"):
        simulate(kernel_of(COPY, blob, 4), given, 4, blobs={"m": TensorMap("x", (4,), (1,))})


@pytest.mark.parametrize(
    "body, as_vector",
    [
        ("barrier scope=group", True),
        ("t: i32 = subgroup_lane", True),
        ("barrier scope=subgroup", False),
        ("c: bool = set true\nif c {\nfence scope=async\n}", True),
        ("for i: i32 = 0, 2, 1 {\nt: token[copy] = async_commit\n}", False),
        ("roles {\na first=0 count=1 regs=0 {\n}\n}", False),
    ],
)
def test_what_meets_only_as_a_group_runs_as_one_vector(body, as_vector):
    assert runs_as_vector(kernel_of(body, width=32)) == as_vector


@pytest.mark.parametrize("name", sorted(p.stem for p in FOLDER.glob("*.kir")))
def test_the_kernels_written_by_hand_parse_and_verify(name):
    kernel = parse(kernel_text(name))
    verify(kernel)
    assert kernel.name == name
    assert parse(show(kernel)) == kernel


@pytest.mark.parametrize("in_waves", [False, True], ids=["vector", "waves"])
def test_a_subgroup_of_64_lanes_sums_a_row(in_waves):
    x = np.random.default_rng(0).standard_normal((10, 256)).astype(np.float32)
    y = np.zeros(10, np.float32)
    simulate(parse(kernel_text("sum_wave64")), {"x": x, "y": y}, 5, in_waves=in_waves)
    np.testing.assert_allclose(y, x.sum(1), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("in_waves", [False, True], ids=["vector", "waves"])
def test_four_subgroups_of_32_lanes_sum_a_row(in_waves):
    x = np.random.default_rng(0).standard_normal((5, 256)).astype(np.float32)
    y = np.zeros(5, np.float32)
    simulate(parse(kernel_text("sum_wave32")), {"x": x, "y": y}, 5, in_waves=in_waves)
    np.testing.assert_allclose(y, x.sum(1), rtol=1e-5, atol=1e-5)


def test_the_gemm_micro_kernel_loads_scalars_of_a_and_vectors_of_b():
    kernel = parse(kernel_text("gemm_6x16"))
    rng = np.random.default_rng(0)
    a, b = (
        rng.standard_normal((12, 40)).astype(np.float32),
        rng.standard_normal((40, 32)).astype(np.float32),
    )
    packed_a = np.ascontiguousarray(a.reshape(2, 6, 40).transpose(0, 2, 1))
    packed_b = np.ascontiguousarray(b.reshape(40, 2, 16).transpose(1, 0, 2))
    c = np.zeros((12, 32), np.float32)
    stats = simulate(kernel, {"a": packed_a, "b": packed_b, "c": c}, (2, 2))
    np.testing.assert_allclose(c, a @ b, rtol=1e-4, atol=1e-5)
    assert stats.loads == {"a": 4 * 40 * 6 * 16, "b": 4 * 40 * 16, "c": 0}
    u = analyse(kernel)
    loop = next(s for s in kernel.body if hasattr(s, "unroll"))
    kinds = {i.attr("mem"): u.of(i.args[0]) for i in loop.body if getattr(i, "op", "") == "load"}
    assert kinds["a"].is_uniform
    assert kinds["b"].stride == 1
    assert [u.of(s.dsts[0]).kind for s in loop.body if getattr(s, "op", "") == "fma"] == [
        "varying"
    ] * 6


def test_many_groups_cost_little_more_than_one():
    """The speed that CI counts on: a thousand groups of 64 lanes are a few vectors, not a thousand
    runs.
    """
    text = kernel_of(COPY.replace("mul g, 4", "mul g, 64"), HEAD.replace("16", "65536"), 64)
    x, y = np.zeros(65536, np.float32), np.ones(65536, np.float32)
    start = time.perf_counter()
    simulate(text, {"x": x, "y": y}, 1024, buffer_races=True)
    assert time.perf_counter() - start < 2
    assert not y.any()
