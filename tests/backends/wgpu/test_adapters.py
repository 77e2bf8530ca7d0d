"""What an adapter says, and devices with exactly the limits asked for."""

from __future__ import annotations

from dataclasses import replace

import pytest

from poot.backends.wgpu.adapters import NATIVE, Adapter, connect, read_adapters
from poot.errors import BackendUnavailable
from poot.limits import profile


def first() -> Adapter:
    try:
        return read_adapters()[0]
    except BackendUnavailable as e:
        pytest.skip(e.message)


def test_adapters_are_native_ones_with_limits_of_at_least_the_baseline():
    least = profile("webgpu-baseline")
    for adapter in read_adapters() if first() else []:
        assert adapter.description.rpartition(" ")[2] in NATIVE
        for name in ("workgroup_nbytes", "threads", "buffer_nbytes", "binding_nbytes"):
            assert getattr(adapter.limits, name) >= getattr(least, name)
        assert adapter.limits.buffer_nbytes % 16 == 0
        assert adapter.limits.grid == (65535, 65535, 65535)


def test_a_device_in_full_has_what_its_adapter_has():
    adapter, gpu = first(), connect(0)
    assert gpu.limits == adapter.limits
    assert gpu.device.limits["max-compute-invocations-per-workgroup"] == adapter.limits.threads
    assert ("shader-f16" in gpu.device.features) == adapter.limits.has_f16_storage


def test_a_baseline_device_has_exactly_the_baseline():
    first()
    gpu = connect(0, profile("webgpu-baseline"))
    has = gpu.device.limits
    trips = connect(0).limits.loop_trips  # what the driver cuts short, whatever was asked for
    assert gpu.limits == replace(profile("webgpu-baseline"), loop_trips=trips)
    assert has["max-storage-buffers-per-shader-stage"] == 8
    assert has["max-compute-invocations-per-workgroup"] == 256
    assert has["max-compute-workgroup-storage-size"] == 16384
    assert has["max-storage-buffer-binding-size"] == 128 << 20
    assert has["min-storage-buffer-offset-alignment"] == 256
    assert not {"shader-f16", "shader-int64", "subgroup"} & set(gpu.device.features)


def test_openings_with_equal_limits_share_one_device():
    first()
    assert connect(0) is connect(0)
    assert connect(0) is not connect(0, profile("webgpu-baseline"))


def test_limits_beyond_the_adapters_are_refused_with_both_numbers():
    most = first().limits.storage_buffers
    asked = replace(profile("webgpu-baseline"), storage_buffers=most + 1)
    with pytest.raises(BackendUnavailable, match=f"storage_buffers {most + 1}: .* has {most}"):
        connect(0, asked)
