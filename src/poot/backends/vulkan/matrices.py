"""Cooperative matrices of a physical device: of which dtypes kernels multiply them, and what turns
them on.

A kernel multiplies 16x16 by 16x16 within a subgroup, with sums in f32, in Vulkan's memory model. A
device has a dtype where its driver lists that product among its properties.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from poot.backends.vulkan.loader import vk

COOPERATIVE_MATRIX = "VK_KHR_cooperative_matrix"
MEMORY_MODEL = "VK_KHR_vulkan_memory_model"
FLOAT16 = "VK_KHR_shader_float16_int8"
BFLOAT16 = "VK_KHR_shader_bfloat16"
# VkComponentTypeKHR and VkScopeKHR (Vulkan specification, VK_KHR_cooperative_matrix,
# VK_KHR_shader_bfloat16); the Python package has no name for bfloat16's.
_COMPONENTS = {"f16": 0, "bf16": 1000141000}
_FLOAT32, _SUBGROUP = 1, 3
_SIDE = 16
# VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SHADER_BFLOAT16_FEATURES_KHR: three VkBool32, of which the
# first is the type and the last its cooperative matrices. The package has no such struct, but one
# of that form.
_BFLOAT16_FEATURES = 1000141000


@dataclass(frozen=True, slots=True)
class Product:
    """A product that the driver lists: [m, k] x [k, n] + [m, n]."""

    m: int
    n: int
    k: int
    a: int
    b: int
    c: int
    result: int
    saturates: bool
    scope: int


def multiplied(products: Iterable[Product]) -> tuple[str, ...]:
    """The dtypes of which a subgroup multiplies 16x16 matrices into f32."""
    found: set[str] = set()
    for p in products:
        is_fit = (p.m, p.n, p.k, p.scope) == (_SIDE, _SIDE, _SIDE, _SUBGROUP) and not p.saturates
        if is_fit and (p.c, p.result) == (_FLOAT32, _FLOAT32):
            found |= {d for d, number in _COMPONENTS.items() if p.a == p.b == number}
    return tuple(sorted(found))


@dataclass(frozen=True, slots=True)
class Matrices:
    """What a device has: dtypes, and whether the memory model has the scope of a device too."""

    dtypes: tuple[str, ...] = ()
    has_device_scope: bool = False

    @property
    def extensions(self) -> tuple[str, ...]:
        """What a device is to be made with."""
        if not self.dtypes:
            return ()
        own = {"f16": FLOAT16, "bf16": BFLOAT16}
        return (COOPERATIVE_MATRIX, MEMORY_MODEL, *(own[d] for d in self.dtypes))

    def features(self, rest: object) -> object:
        """The feature chain, before what was there already."""
        if not self.dtypes:
            return rest
        chain = vk.VkPhysicalDeviceCooperativeMatrixFeaturesKHR(pNext=rest, cooperativeMatrix=True)
        chain = vk.VkPhysicalDeviceVulkanMemoryModelFeatures(
            pNext=chain, vulkanMemoryModel=True, vulkanMemoryModelDeviceScope=self.has_device_scope
        )
        if "f16" in self.dtypes:
            chain = vk.VkPhysicalDeviceShaderFloat16Int8Features(pNext=chain, shaderFloat16=True)
        if "bf16" in self.dtypes:
            chain = _bfloat16(chain, is_on=True)
        return chain


def _bfloat16(rest: object, *, is_on: bool) -> object:
    return vk.VkPhysicalDeviceVulkanMemoryModelFeatures(
        sType=_BFLOAT16_FEATURES, pNext=rest, vulkanMemoryModel=is_on,
        vulkanMemoryModelAvailabilityVisibilityChains=is_on,
    )  # fmt: skip


def read_matrices(instance: object, handle: object, extensions: frozenset[str]) -> Matrices:
    """Asks the driver."""
    if not {COOPERATIVE_MATRIX, MEMORY_MODEL} <= extensions:
        return Matrices()
    matrices: Any = vk.VkPhysicalDeviceCooperativeMatrixFeaturesKHR()
    model: Any = vk.VkPhysicalDeviceVulkanMemoryModelFeatures(pNext=matrices)
    chain: Any = model
    half: Any = None
    wide: Any = None
    if FLOAT16 in extensions:
        chain = half = vk.VkPhysicalDeviceShaderFloat16Int8Features(pNext=chain)
    if BFLOAT16 in extensions:
        chain = wide = _bfloat16(chain, is_on=False)
    asked = vk.VkPhysicalDeviceFeatures2(pNext=chain)
    vk.vkGetPhysicalDeviceFeatures2(handle, asked)
    if not matrices.cooperativeMatrix or not model.vulkanMemoryModel:
        return Matrices()
    there = {
        "f16": half is not None and bool(half.shaderFloat16),
        "bf16": wide is not None
        and bool(wide.vulkanMemoryModel)
        and bool(wide.vulkanMemoryModelAvailabilityVisibilityChains),
    }
    dtypes = tuple(d for d in multiplied(_products(instance, handle)) if there[d])
    return Matrices(dtypes, bool(model.vulkanMemoryModelDeviceScope))


def _products(instance: object, handle: object) -> list[Product]:
    """The driver's list, by its own function: the package's wrapper leaves the rows' sType out."""
    name = "vkGetPhysicalDeviceCooperativeMatrixPropertiesKHR"
    ffi = vk.ffi
    found = vk.lib.vkGetInstanceProcAddr(instance, name.encode())
    if found == ffi.NULL:
        return []
    call = ffi.cast(f"PFN_{name}", found)
    count = ffi.new("uint32_t*")
    if call(handle, count, ffi.NULL):
        return []
    rows = ffi.new("VkCooperativeMatrixPropertiesKHR[]", count[0])
    for row in rows:
        row.sType = vk.VK_STRUCTURE_TYPE_COOPERATIVE_MATRIX_PROPERTIES_KHR
    if call(handle, count, rows):
        return []
    return [
        Product(
            r.MSize, r.NSize, r.KSize, int(r.AType), int(r.BType), int(r.CType), int(r.ResultType),
            bool(r.saturatingAccumulation), int(r.scope),
        )
        for r in rows[0 : count[0]]
    ]  # fmt: skip
