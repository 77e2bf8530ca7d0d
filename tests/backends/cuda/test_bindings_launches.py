"""What cuda-bindings is told of launches with attributes, against a stand-in for the library."""

from __future__ import annotations

from dataclasses import replace

import pytest

from poot.backends.base import BufferRef, Code, Launch
from poot.backends.cuda.cuda_bindings import BindingsDriver, BindingsProvider
from poot.backends.cuda.device import CudaDevice
from poot.backends.cuda.provider import Call
from poot.backends.launches import CLUSTER, RESIDENT
from poot.codegen.attributes import Attributes, TensorView
from poot.codegen.kir.nodes import Blob
from poot.errors import GridLimit, LaunchError
from tests.support.counting import PROVIDERS, count_up, opened_card, words
from tests.support.fake_bindings import FakeBindings, Result, stand_in


@pytest.fixture
def cu(monkeypatch: pytest.MonkeyPatch) -> FakeBindings:
    return stand_in(monkeypatch)


def opened(cu: FakeBindings) -> BindingsDriver:
    driver = BindingsProvider().open(0, None)
    cu.calls.clear()
    return driver


def call(driver: BindingsDriver) -> Call:
    return Call("gemv", driver.load(b"x\0", "gemv", 0), (3, 2, 1), 64, 0, bytes(16), (0, 8, 12))


PDL = Attributes(overlap=True)
CLUSTERS = Attributes(cluster=(1, 2, 1))


def test_a_launch_with_attributes_is_told_them(cu):
    driver = opened(cu)
    asked = Attributes(overlap=True, cluster=(3, 1, 1))
    bound = driver.bind([replace(call(driver), attributes=asked, dynamic_nbytes=65536)])
    driver.launch(bound, is_checked=False)
    (launch,) = [args for name, args in cu.calls if name == "cuLaunchKernelEx"]
    config = launch[0]
    assert (config.gridDimX, config.blockDimX, config.sharedMemBytes) == (3, 64, 65536)
    assert config.numAttrs == len(config.attrs) == 2
    overlap, cluster = config.attrs
    assert overlap.id == "CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION"
    assert overlap.value.programmaticStreamSerializationAllowed == 1
    assert cluster.id == "CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION"
    assert (cluster.value.clusterDim.x, cluster.value.clusterDim.y) == (3, 1)
    assert "cuLaunchKernel" not in cu.names()


def test_a_node_that_may_overlap_hangs_on_a_programmatic_edge(cu):
    driver = opened(cu)
    rows = [call(driver), call(driver), replace(call(driver), attributes=CLUSTERS)]
    rows = [replace(row, attributes=PDL) for row in rows[:2]] + rows[2:]
    cu.calls.clear()
    driver.record(driver.bind(rows))
    nodes = [args for name, args in cu.calls if name == "cuGraphAddKernelNode"]
    assert [args[2] for args in nodes] == [0, 0, 1]
    (edge,) = [args for name, args in cu.calls if name == "cuGraphAddDependencies"]
    (data,) = edge[3]
    assert (data.from_port, data.type) == (1, "CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC")
    (cluster,) = [args for name, args in cu.calls if name == "cuGraphKernelNodeSetAttribute"]
    assert (cluster[2].clusterDim.x, cluster[2].clusterDim.y) == (1, 2)


def test_a_tensor_map_is_made_of_extents_and_strides_in_bytes(cu):
    driver = opened(cu)
    blob = Blob("k_map", dtype="bf16", box=(64, 16), swizzle="128B")
    made = driver.tensor_map(4096, TensorView((64, 100), (1, 80)), blob)
    assert made == b"".join(n.to_bytes(8, "little") for n in range(16))
    (args,) = [args for name, args in cu.calls if name == "cuTensorMapEncodeTiled"]
    assert args[:7] == (
        "CU_TENSOR_MAP_DATA_TYPE_BFLOAT16", 2, 4096, [64, 100], [160], [64, 16], [1, 1],
    )  # fmt: skip
    assert args[8] == "CU_TENSOR_MAP_SWIZZLE_128B"
    cu.fails["cuTensorMapEncodeTiled"] = Result.CUDA_ERROR_INVALID_VALUE
    with pytest.raises(LaunchError, match=r"a tensor map k_map of .*INVALID_VALUE"):
        driver.tensor_map(4096, TensorView((64, 100), (1, 80)), blob)


# On hardware


@pytest.fixture(params=PROVIDERS)
def real(request: pytest.FixtureRequest):
    """A device of each provider; closed afterwards."""
    device = opened_card(request.param)
    yield device
    device.close()


def waiting(code: Code) -> Code:
    """The kernel's code with a wait for the launch before it, as an overlapping one needs."""
    wait = code.binary.replace(b"    mov.u32", b"    griddepcontrol.wait;\n    mov.u32", 1)
    assert wait != code.binary
    return replace(code, binary=wait)


@pytest.mark.cuda
def test_real_launches_that_may_overlap_see_what_ran_before_them(real: CudaDevice):
    kernels = [count_up(1, "one"), count_up(5, "five")]
    loaded = real.load([waiting(real.emit(k)) for k in kernels])
    states = real.allocate(256, "states")
    ref = (BufferRef("states", 0, 256),)
    asked = Attributes(overlap=True)
    launches = [Launch(n % 2, (2, 1, 1), ref, (), asked) for n in range(50)]
    run = real.prepare(loaded, launches, {"states": states})
    run.run()
    assert (words(real, states) == 150).all()
    assert len(run.timed()) == 50
    if real.driver.has_graphs:
        run.record()
        run.run()
        run.run()
    assert (words(real, states) == (600 if real.driver.has_graphs else 300)).all()


@pytest.mark.cuda
def test_real_clusters_and_resident_groups_are_launched_or_refused(real: CudaDevice):
    kernel = count_up()
    states, loaded = real.allocate(256, "states"), real.load([real.emit(kernel)])
    ref = (BufferRef("states", 0, 256),)
    runs = 0
    kinds = {CLUSTER: Attributes(cluster=(2, 1, 1)), RESIDENT: Attributes(is_resident=True)}
    for kind, asked in kinds.items():
        row = Launch(0, (2, 1, 1), ref, (), asked)
        if kind not in real.driver.can:
            with pytest.raises(LaunchError, match="count_up asks"):
                real.prepare(loaded, [row], {"states": states})
            continue
        run = real.prepare(loaded, [row], {"states": states})
        run.run()
        if real.driver.has_graphs:
            run.record()
        run.run()
        runs += 2
    assert (words(real, states) == runs).all()
    assert runs == (4 if real.driver.has_graphs else 2)
    if RESIDENT in real.driver.can:
        over = Launch(0, (64 * real.limits.compute_units, 1, 1), ref, (), asked)
        with pytest.raises(GridLimit, match="resident all at once"):
            real.prepare(loaded, [over], {"states": states})
