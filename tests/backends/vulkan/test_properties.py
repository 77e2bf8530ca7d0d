"""What is read of a physical device, on the machine's own."""

from __future__ import annotations

import pytest

from poot.backends.vulkan.driver import physical_devices
from poot.backends.vulkan.properties import Physical
from poot.errors import BackendUnavailable


def first() -> Physical:
    try:
        return physical_devices()[0]
    except BackendUnavailable as e:
        pytest.skip(e.message)


def test_limits_are_at_least_what_vulkan_promises():
    limits = first().limits
    assert limits.target == "spirv"
    assert limits.threads >= 128
    assert limits.workgroup_nbytes >= 16384
    assert min(limits.grid) >= 65535
    assert limits.binding_nbytes >= 128 << 20
    assert limits.storage_buffers >= 4
    assert limits.buffer_nbytes <= limits.memory_nbytes
    assert limits.offset_align in (16, 32, 64, 128, 256)
    assert limits.compute_units >= 1


def test_a_software_device_says_so():
    physical = first()
    assert physical.limits.is_software == ("llvmpipe" in physical.limits.name)
    assert physical.description.startswith(physical.limits.name)


def test_memory_for_the_host_is_visible_and_coherent():
    physical = first()
    at = physical.memory_type(True, (1 << len(physical.kinds)) - 1)
    assert physical.kinds[at] & 0b110 == 0b110  # host visible, host coherent


def test_a_width_outside_the_drivers_is_not_asked_for():
    physical = first()
    assert physical.required_subgroup(None) == (None, 0)
    assert physical.required_subgroup(4096) == (None, 0)
    info, flags = physical.required_subgroup(physical.subgroups[0])
    assert (info is None) == (flags == 0)
