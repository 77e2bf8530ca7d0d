"""Which products of a driver's list kernels can use, and what turns them on."""

from __future__ import annotations

from dataclasses import replace

import pytest

from poot.backends.vulkan.driver import physical_devices
from poot.backends.vulkan.matrices import Matrices, Product, multiplied
from poot.errors import BackendUnavailable

HALF = Product(16, 16, 16, 0, 0, 1, 1, saturates=False, scope=3)
BFLOAT = replace(HALF, a=1000141000, b=1000141000)


def test_a_product_of_16_by_16_into_f32_within_a_subgroup_is_taken():
    assert multiplied([HALF, BFLOAT]) == ("bf16", "f16")
    assert multiplied([BFLOAT]) == ("bf16",)
    assert multiplied([]) == ()


@pytest.mark.parametrize(
    "other",
    [
        {"m": 8}, {"n": 8}, {"k": 32}, {"c": 0}, {"result": 0}, {"b": 1}, {"scope": 2},
        {"saturates": True}, {"a": 3, "b": 3},
    ],
    ids=str,
)  # fmt: skip
def test_other_products_are_not(other):
    assert multiplied([replace(HALF, **other)]) == ()


def test_extensions_and_features_are_of_the_dtypes_alone():
    vk = pytest.importorskip("vulkan", exc_type=(ImportError, OSError))
    assert Matrices().extensions == ()
    assert Matrices().features("rest") == "rest"
    both = Matrices(("bf16", "f16"), has_device_scope=True)
    assert both.extensions == (
        "VK_KHR_cooperative_matrix", "VK_KHR_vulkan_memory_model", "VK_KHR_shader_bfloat16",
        "VK_KHR_shader_float16_int8",
    )  # fmt: skip
    rest = vk.VkPhysicalDevice16BitStorageFeatures()
    first = both.features(rest)
    assert first.sType == 1000141000
    assert (first.vulkanMemoryModel, first.vulkanMemoryModelDeviceScope) == (1, 0)
    assert first.vulkanMemoryModelAvailabilityVisibilityChains == 1


def test_limits_say_what_the_driver_lists():
    try:
        found = physical_devices()
    except BackendUnavailable as e:
        pytest.skip(e.message)
    for physical in found:
        assert physical.limits.matrix_dtypes == physical.matrices.dtypes
        assert set(physical.matrices.extensions) <= set(physical.extensions)
