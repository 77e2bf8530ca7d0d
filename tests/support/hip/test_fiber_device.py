"""The fiber runner finds what is planted, and says where."""

from __future__ import annotations

import numpy as np
import pytest

from poot.codegen.code import Code
from poot.codegen.emitters import emit
from poot.codegen.kir.build import KernelBuilder
from poot.errors import LaunchError
from tests.support.gpu import launch_code
from tests.support.hip import planted
from tests.support.hip.fiber_device import WAVES, FiberDevice, fiber_limits

GRID = (2, 1, 1)
pytestmark = pytest.mark.parametrize("wave", WAVES)


def run(wave: int, code: Code, order: int = 2) -> np.ndarray:
    return launch_code(FiberDevice(wave, order), code, {"x": planted.feed()}, GRID)["y"]


@pytest.mark.parametrize("order", [0, 1, 2])
def test_the_kernels_are_right_before_anything_is_planted(wave: int, order: int):
    x, limits = planted.feed(), fiber_limits(wave)
    np.testing.assert_array_equal(run(wave, planted.rotate(limits), order), planted.rotated(x))
    swapped = x.reshape(-1, 2)[:, ::-1].reshape(-1)
    np.testing.assert_array_equal(run(wave, planted.exchange(limits), order), swapped)


@pytest.mark.parametrize("order", [0, 1])
def test_a_removed_barrier_changes_the_numbers(wave: int, order: int):
    """Workgroup memory starts each group as NaN, and a lane runs as far as it can."""
    y = run(wave, planted.without_barrier(fiber_limits(wave)), order)
    wrong = np.isnan(y).sum()
    assert wrong == (2 * (planted.LANES - 1) if order == 0 else 2)


@pytest.mark.parametrize("by, hides", [(-1, 0), (1, 1)])
def test_a_removed_barrier_in_a_launch_of_one_group_is_reported(wave: int, by: int, hides: int):
    """One order of the lanes gives the right numbers without the barrier, the other doesn't."""
    right = planted.shift(fiber_limits(wave), by)
    x = planted.feed()
    want = x[np.clip(np.arange(planted.LANES) + by, 0, planted.LANES - 1)]

    def shifted(code: Code, order: int) -> np.ndarray:
        return launch_code(FiberDevice(wave, order), code, {"x": x})["y"][: planted.LANES]

    bad = planted.edited(right, planted.BARRIER, "")
    np.testing.assert_array_equal(shifted(right, 2), want)
    np.testing.assert_array_equal(shifted(bad, hides), want)
    assert np.isnan(shifted(bad, 1 - hides)).any()
    with pytest.raises(LaunchError) as caught:
        shifted(bad, 2)
    said = "kernel shift: what it leaves hangs on which lane or group runs first"
    assert said in caught.value.message
    assert "508 bytes of arena" in caught.value.message


def test_a_removed_barrier_is_reported_in_a_launch_of_several_groups(wave: int):
    with pytest.raises(LaunchError, match="kernel rotate: what it leaves hangs on which lane"):
        run(wave, planted.without_barrier(fiber_limits(wave)))


def test_a_group_that_reads_what_another_wrote_is_reported(wave: int):
    k = KernelBuilder("chain", planted.LANES)
    y = k.param("y", "f32", 4 * planted.LANES, "rw")
    before = k.op("max", k.group_id(0) - 1, 0)
    other = k.load(y, before * planted.LANES + k.lane())
    k.store(y, k.group_id(0) * planted.LANES + k.lane(), other + 1.0)
    given = {"y": np.zeros(4 * planted.LANES, np.float32)}
    with pytest.raises(LaunchError, match="kernel chain: what it leaves hangs on which lane or"):
        launch_code(FiberDevice(wave), emit(k.kernel(), fiber_limits(wave)), given, (4, 1, 1))


def test_what_is_updated_in_place_is_updated_once(wave: int):
    """Both orders start from the bytes that the launch was given."""
    k = KernelBuilder("count", planted.LANES)
    x, y = k.param("x", "f32", planted.LANES, "r"), k.param("y", "f32", planted.LANES, "rw")
    k.store(y, k.lane(), k.load(y, k.lane()) + k.load(x, k.lane()))
    code = emit(k.kernel(), fiber_limits(wave))
    given = {"x": np.ones(planted.LANES, np.float32), "y": np.full(planted.LANES, 2, np.float32)}
    np.testing.assert_array_equal(launch_code(FiberDevice(wave), code, given)["y"], 3.0)


def test_a_divergent_barrier_is_reported_with_both_places(wave: int):
    with pytest.raises(LaunchError) as caught:
        run(wave, planted.divergent_barrier(fiber_limits(wave)))
    said = caught.value.message
    assert "kernel rotate: divergent barrier in group (0, 0, 0)" in said
    assert "lane 0 is at line" in said
    assert "`if (threadIdx.x != 77) __syncthreads();`" in said
    assert "lane 77 has ended" in said


def test_a_divergent_exchange_is_reported_with_both_places(wave: int):
    with pytest.raises(LaunchError, match="kernel exchange: divergent wave in group") as caught:
        run(wave, planted.divergent_exchange(fiber_limits(wave)))
    assert "lane 0 has ended" in caught.value.message
    assert "__shfl_xor" in caught.value.message


@pytest.mark.parametrize("by", [planted.LANES, 1, -planted.LANES, 1 << 20])
def test_an_out_of_bounds_write_is_reported(wave: int, by: int):
    with pytest.raises(LaunchError, match="kernel rotate: out of bounds"):
        run(wave, planted.outside_write(fiber_limits(wave), by))


def test_a_fault_names_lane_and_place_and_the_device_goes_on(wave: int):
    limits = fiber_limits(wave)
    with pytest.raises(LaunchError) as caught:
        run(wave, planted.outside_write(limits, 1), 0)
    assert "in group (1, 0, 0): lane 127 touches byte +1024 of arena" in caught.value.message
    good = run(wave, planted.rotate(limits))
    np.testing.assert_array_equal(good, planted.rotated(planted.feed()))


def test_a_write_behind_the_workgroup_memory_is_reported(wave: int):
    with pytest.raises(LaunchError, match="it wrote 4 bytes behind its workgroup memory of"):
        run(wave, planted.behind_shared(fiber_limits(wave)))


def test_a_lane_outside_the_wave_is_reported(wave: int):
    k = KernelBuilder("far", planted.LANES, wave)
    y = k.param("y", "i32", planted.LANES, "w")
    k.store(y, k.lane(), k.op("shuffle", k.lane(), k.lane(), type=k.lane().type))
    with pytest.raises(LaunchError, match="kernel far: a lane outside the wave"):
        launch_code(FiberDevice(wave), emit(k.kernel(), fiber_limits(wave)), {})


def test_a_write_of_what_is_only_read_is_reported(wave: int):
    code = planted.rotate(fiber_limits(wave))
    (line,) = [x.strip() for x in code.text.splitlines() if x.strip().startswith("y[")]
    bad = planted.edited(code, line, f"{line} ((float*)x)[0] = 5.0f;")
    with pytest.raises(LaunchError, match="it wrote what it only reads of arena"):
        run(wave, bad)


def test_a_text_that_is_no_cpp_is_refused_by_kernel_name(wave: int):
    bad = planted.edited(planted.rotate(fiber_limits(wave)), planted.BARRIER, "nonsense;")
    with pytest.raises(LaunchError, match="kernel rotate: g\\+\\+ refuses the text"):
        FiberDevice(wave).load([bad])
