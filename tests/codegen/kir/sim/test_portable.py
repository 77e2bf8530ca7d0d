"""The portable ops that ask where a lane is, and those of subgroups."""

from __future__ import annotations

import numpy as np
import pytest

from poot.codegen.kir.ops import KIR_OPS
from poot.codegen.kir.sim import simulate
from poot.codegen.kir.sim.portable import PORTABLE, VECTOR
from poot.errors import SimulationError
from tests.support.kernels import kernel_of, run_kernel

pytestmark = pytest.mark.quick
HEAD = "param x: i32[64] r align=4\nparam out: i32[64] w align=4"


def test_the_vector_machine_has_every_portable_op_but_no_other():
    assert sorted(VECTOR.makers) == sorted(n for n, row in KIR_OPS.items() if row.portable)
    assert set(VECTOR.makers) == {*PORTABLE, "barrier"}


def run(line: str, x: np.ndarray, width: int = 32, in_waves: bool = False) -> np.ndarray:
    out = np.zeros(64, np.int32)
    body = f"l: i32 = lane\nv: i32 = load x[l]\n{line}\nstore out[l], d"
    run_kernel(body, HEAD, {"x": x, "out": out}, width=width, in_waves=in_waves)
    return out


X = np.random.default_rng(0).integers(-1000, 1000, 64).astype(np.int32)
ROWS = X.reshape(2, 32)
CASES = {
    "d: i32 = shuffle_xor v mask=5": ROWS[:, np.arange(32) ^ 5],
    "r: i32 = subgroup_lane\ns: i32 = sub 31, r\nd: i32 = shuffle v, s": ROWS[:, ::-1],
    "d: i32 = subgroup_broadcast v lane=7": np.repeat(ROWS[:, 7:8], 32, axis=1),
    "d: i32 = subgroup_reduce v kind=add width=32": np.repeat(ROWS.sum(1)[:, None], 32, axis=1),
    "d: i32 = subgroup_reduce v kind=max width=4": np.repeat(
        X.reshape(-1, 4).max(1)[:, None], 4, axis=1
    ),
    "d: i32 = subgroup_reduce v kind=min width=1": X,
    "c: bool = lt v, -900\ne: bool = vote_any c\nd: i32 = cast e": np.repeat(
        (ROWS < -900).any(1)[:, None], 32, axis=1
    ),
    "c: bool = lt v, 990\ne: bool = vote_all c\nd: i32 = cast e": np.repeat(
        (ROWS < 990).all(1)[:, None], 32, axis=1
    ),
    "c: bool = lt v, 0\ne: u32 = ballot c\nd: i32 = bitcast e": np.repeat(
        [int(sum(1 << i for i in range(32) if row[i] < 0)) for row in ROWS], 32
    ).astype(np.uint32),
    "d: i32 = subgroup_id": np.repeat([0, 1], 32),
    "d: i32 = subgroup_lane": np.tile(np.arange(32), 2),
}


@pytest.mark.parametrize("in_waves", [False, True], ids=["vector", "waves"])
@pytest.mark.parametrize("line", CASES)
def test_lanes_of_a_subgroup_exchange_values(line, in_waves):
    got = run(line, X, in_waves=in_waves)
    np.testing.assert_array_equal(got, CASES[line].reshape(-1).astype(np.int64).astype(np.int32))


def test_a_subgroup_can_be_64_lanes_wide():
    got = run("d: i32 = subgroup_reduce v kind=add width=64", X, width=64)
    assert set(got) == {int(X.sum())}


def test_every_lane_of_a_sum_gets_the_same_bits():
    x = np.random.default_rng(1).standard_normal(64).astype(np.float32)
    out = np.zeros(64, np.float32)
    body = (
        "l: i32 = lane\nv: f32 = load x[l]\n"
        "d: f32 = subgroup_reduce v kind=add width=32\nstore out[l], d"
    )
    head = "param x: f32[64] r align=4\nparam out: f32[64] w align=4"
    run_kernel(body, head, {"x": x, "out": out}, width=32)
    assert len(set(out[:32])) == 1
    np.testing.assert_allclose(out[0], x[:32].sum(), rtol=1e-5)


@pytest.mark.parametrize("in_waves", [False, True], ids=["vector", "waves"])
def test_a_subgroup_of_which_a_part_arrives_is_refused(in_waves):
    """Verification would refuse it first; the simulator sees it as it happens."""
    body = "l: i32 = lane\nc: bool = lt l, 3\nif c {\nd: i32 = shuffle_xor l mask=1\n}"
    with pytest.raises(SimulationError, match="part of a subgroup reaches it") as found:
        run_kernel(body, width=32, is_verified=False, in_waves=in_waves)
    assert found.value.kind == "divergent-barrier"


def test_a_whole_subgroup_may_come_alone():
    run_kernel(
        "l: i32 = lane\nc: bool = lt l, 32\nif c {\nd: i32 = shuffle_xor l mask=1\n}", width=32
    )


def test_a_shuffle_stays_in_the_subgroup():
    with pytest.raises(SimulationError, match="a shuffle from outside the subgroup: lane 32"):
        run_kernel("l: i32 = lane\nd: i32 = shuffle l, l", width=32)


@pytest.mark.parametrize("in_waves", [False, True], ids=["vector", "waves"])
def test_a_divergent_barrier_is_refused(in_waves):
    body = "l: i32 = lane\nc: bool = lt l, 3\nif c {\nbarrier scope=group\n}"
    with pytest.raises(SimulationError, match="divergent-barrier: part of") as found:
        run_kernel(body, is_verified=False, in_waves=in_waves)
    assert found.value.kind == "divergent-barrier"


@pytest.mark.parametrize("in_waves", [False, True], ids=["vector", "waves"])
def test_where_a_group_is_and_what_the_launch_gave(in_waves):
    head = "param out: i32[7] w align=4\nimm n: i32\nimm f: f32\nimm w: u32"
    lines = [f"g{a}: i32 = group_id axis={a}\nn{a}: i32 = num_groups axis={a}" for a in range(3)]
    body = "\n".join(lines) + "\ni: i32 = imm name=n\nf: f32 = imm name=f\nu: u32 = imm name=w\n"
    body += "fi: i32 = cast f\nui: i32 = bitcast u\ns: i32 = add fi, ui\ne: i32 = add s, i\n"
    body += "".join(f"store out[{a}], g{a}\nstore out[{a + 3}], n{a}\n" for a in range(3))
    body += "store out[6], e"
    out = np.zeros(7, np.int32)
    kernel = kernel_of(body, head, threads=1)
    simulate(kernel, {"out": out}, (4, 5, 6), [(1, 2, 3)], (-3, 7.5, 2**32 - 1), in_waves=in_waves)
    np.testing.assert_array_equal(out, [1, 2, 3, 4, 5, 6, -3 + 7 - 1])


def test_a_mutable_register_that_holds_nothing_is_not_read():
    body = "l: i32 = lane\nvar m: i32 = undef\nd: i32 = add m, 1"
    with pytest.raises(SimulationError, match="register m holds nothing yet") as found:
        run_kernel(body)
    assert found.value.kind == "uninitialised"
