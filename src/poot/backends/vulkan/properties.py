"""What a Vulkan driver says of a physical device, as DeviceLimits and the features to turn on."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from typing import Any

from poot.backends.vulkan.loader import vk
from poot.backends.vulkan.matrices import Matrices, read_matrices
from poot.limits import LLVMPIPE_TRIPS, DeviceLimits

SUBGROUP_CONTROL = "VK_EXT_subgroup_size_control"
DRIVER_PROPERTIES = "VK_KHR_driver_properties"
SM_BUILTINS = "VK_NV_shader_sm_builtins"
CORE_PROPERTIES = "VK_AMD_shader_core_properties"
UNKNOWN_UNITS = 32
# Vulkan 1.3, VkPipelineShaderStageCreateFlagBits; the Python package has no name for it.
REQUIRE_FULL_SUBGROUPS = 0x2


@dataclass(frozen=True, slots=True)
class Physical:
    """One physical device. `family` is its queue family, `kinds` (flags, heap) of memory types."""

    handle: object
    limits: DeviceLimits
    description: str
    family: int
    timestamp_us: float
    kinds: tuple[int, ...]
    subgroups: tuple[int, int]
    extensions: tuple[str, ...]
    matrices: Matrices

    @property
    def is_direct(self) -> bool:
        """Whether device memory is mapped, coherent and cached: copies are memory copies."""
        want = (
            vk.VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT
            | vk.VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT
            | vk.VK_MEMORY_PROPERTY_HOST_COHERENT_BIT
            | vk.VK_MEMORY_PROPERTY_HOST_CACHED_BIT
        )
        return any(flags & want == want for flags in self.kinds)

    def memory_type(self, mapped: bool, allowed: int) -> int:
        """The index of the memory type to use: cached host memory, or the device's own."""
        visible = vk.VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT | vk.VK_MEMORY_PROPERTY_HOST_COHERENT_BIT
        cached = visible | vk.VK_MEMORY_PROPERTY_HOST_CACHED_BIT
        local = vk.VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT
        wishes = [cached, visible] if mapped else [local, 0]
        if self.is_direct:
            wishes.insert(0, cached | local)
        for wish in wishes:
            for at, flags in enumerate(self.kinds):
                if allowed >> at & 1 and flags & wish == wish:
                    return at
        raise vk.VkErrorOutOfDeviceMemory()

    def features(self) -> object:
        """The feature chain for vkCreateDevice."""
        storage = vk.VkPhysicalDevice16BitStorageFeatures(
            storageBuffer16BitAccess=self.limits.has_f16_storage
        )
        control = storage
        if SUBGROUP_CONTROL in self.extensions:
            control = vk.VkPhysicalDeviceSubgroupSizeControlFeatures(
                pNext=storage, subgroupSizeControl=True, computeFullSubgroups=True
            )
        control = self.matrices.features(control)
        wanted = vk.VkPhysicalDeviceFeatures(shaderInt64=self.limits.has_i64)
        return vk.VkPhysicalDeviceFeatures2(pNext=control, features=wanted)

    def required_subgroup(self, width: int | None) -> tuple[object, int]:
        """(struct, flags) that ask for full subgroups of the width, where the driver offers it."""
        low, high = self.subgroups
        if width is None or SUBGROUP_CONTROL not in self.extensions or not low <= width <= high:
            return None, 0
        info = vk.VkPipelineShaderStageRequiredSubgroupSizeCreateInfo(requiredSubgroupSize=width)
        return info, REQUIRE_FULL_SUBGROUPS


def _text(chars: object) -> str:
    return chars if isinstance(chars, str) else vk.ffi.string(chars).decode()


def _family(handle: object) -> tuple[int, int]:
    """The queue family to use, and its timestamps' valid bits."""
    families = list(vk.vkGetPhysicalDeviceQueueFamilyProperties(handle))
    for at, family in enumerate(families):
        if family.queueFlags & vk.VK_QUEUE_COMPUTE_BIT:
            return at, family.timestampValidBits
    return 0, 0


def _units(handle: object, extensions: frozenset[str], is_software: bool) -> int:
    """Compute units, where the driver tells."""
    if is_software:
        return os.cpu_count() or 1
    if SM_BUILTINS in extensions:
        sms = vk.VkPhysicalDeviceShaderSMBuiltinsPropertiesNV()
        vk.vkGetPhysicalDeviceProperties2(handle, vk.VkPhysicalDeviceProperties2(pNext=sms))
        return sms.shaderSMCount
    if CORE_PROPERTIES in extensions:
        core = vk.VkPhysicalDeviceShaderCorePropertiesAMD()
        vk.vkGetPhysicalDeviceProperties2(handle, vk.VkPhysicalDeviceProperties2(pNext=core))
        arrays = core.shaderEngineCount * core.shaderArraysPerEngineCount
        return arrays * core.computeUnitsPerShaderArray
    return UNKNOWN_UNITS


def _subgroup(width: int, operations: int, stages: int) -> int:
    """The width that kernels may count on, or 0."""
    need = (
        vk.VK_SUBGROUP_FEATURE_BASIC_BIT
        | vk.VK_SUBGROUP_FEATURE_VOTE_BIT
        | vk.VK_SUBGROUP_FEATURE_ARITHMETIC_BIT
        | vk.VK_SUBGROUP_FEATURE_BALLOT_BIT
        | vk.VK_SUBGROUP_FEATURE_SHUFFLE_BIT
    )
    has_all = operations & need == need
    in_compute = stages & vk.VK_SHADER_STAGE_COMPUTE_BIT
    return width if has_all and in_compute else 0


@dataclass(frozen=True, slots=True)
class Answers:
    """The structs that the driver filled, and the names of its extensions."""

    about: object
    subgroup: object
    memory: object
    widths: object
    driver: object
    storage: object
    features: object
    extensions: frozenset[str]


def _ask(handle: object) -> Answers:
    rows = vk.vkEnumerateDeviceExtensionProperties(handle, None)
    there = frozenset(_text(row.extensionName) for row in rows)
    subgroup = vk.VkPhysicalDeviceSubgroupProperties()
    chain = memory = vk.VkPhysicalDeviceMaintenance3Properties(pNext=subgroup)
    widths = driver = None
    if SUBGROUP_CONTROL in there:
        chain = widths = vk.VkPhysicalDeviceSubgroupSizeControlProperties(pNext=chain)
    if DRIVER_PROPERTIES in there:
        chain = driver = vk.VkPhysicalDeviceDriverProperties(pNext=chain)
    about = vk.VkPhysicalDeviceProperties2(pNext=chain)
    vk.vkGetPhysicalDeviceProperties2(handle, about)
    storage = vk.VkPhysicalDevice16BitStorageFeatures()
    features = vk.VkPhysicalDeviceFeatures2(pNext=storage)
    vk.vkGetPhysicalDeviceFeatures2(handle, features)
    return Answers(about, subgroup, memory, widths, driver, storage, features, there)


def _limits(handle: object, answers: Answers, device_nbytes: int) -> DeviceLimits:
    a: Any = answers
    about, most = a.about.properties, a.about.properties.limits
    is_software = about.deviceType == vk.VK_PHYSICAL_DEVICE_TYPE_CPU
    sub = a.subgroup
    buffers = (most.maxPerStageDescriptorStorageBuffers, most.maxDescriptorSetStorageBuffers)
    return DeviceLimits(
        name=_text(about.deviceName),
        target="spirv",
        workgroup_nbytes=most.maxComputeSharedMemorySize,
        threads=min(most.maxComputeWorkGroupInvocations, most.maxComputeWorkGroupSize[0]),
        grid=tuple(most.maxComputeWorkGroupCount),
        compute_units=_units(handle, answers.extensions, is_software),
        subgroup=_subgroup(sub.subgroupSize, sub.supportedOperations, sub.supportedStages),
        buffer_nbytes=min(a.memory.maxMemoryAllocationSize, device_nbytes),
        binding_nbytes=most.maxStorageBufferRange,
        storage_buffers=min(buffers),
        memory_nbytes=device_nbytes,
        offset_align=max(16, most.minStorageBufferOffsetAlignment),
        has_f16_storage=bool(a.storage.storageBuffer16BitAccess),
        has_i64=bool(a.features.features.shaderInt64),
        is_software=is_software,
        loop_trips=LLVMPIPE_TRIPS if "llvmpipe" in _text(about.deviceName) else 0,
    )


def read_physical(instance: object, handle: object) -> Physical:
    """Asks the driver for everything poot needs to know."""
    answers = _ask(handle)
    a: Any = answers
    memory = vk.vkGetPhysicalDeviceMemoryProperties(handle)
    kinds = tuple(memory.memoryTypes[at].propertyFlags for at in range(memory.memoryTypeCount))
    heaps = [memory.memoryHeaps[at] for at in range(memory.memoryHeapCount)]
    local = [h.size for h in heaps if h.flags & vk.VK_MEMORY_HEAP_DEVICE_LOCAL_BIT]
    limits = _limits(handle, answers, max(local or [h.size for h in heaps]))
    matrices = read_matrices(instance, handle, answers.extensions)
    limits = replace(limits, matrix_dtypes=matrices.dtypes)
    controls = () if a.widths is None else (SUBGROUP_CONTROL,)
    said = ""
    if a.driver is not None:
        said = f", {_text(a.driver.driverName)} {_text(a.driver.driverInfo)}"
    family, stamp_bits = _family(handle)
    period_us = a.about.properties.limits.timestampPeriod / 1000.0
    bounds = (0, 0) if a.widths is None else (a.widths.minSubgroupSize, a.widths.maxSubgroupSize)
    return Physical(
        handle=handle,
        limits=limits,
        description=limits.name + said,
        family=family,
        timestamp_us=period_us if stamp_bits else 0.0,
        kinds=kinds,
        subgroups=bounds,
        extensions=(*controls, *matrices.extensions),
        matrices=matrices,
    )
