"""The Vulkan loader through PyPI's `vulkan` (CFFI), which has no types: `VulkanApi` is its face.

A struct passed to a call keeps alive only what its own constructor was given, so whatever a nested
struct points to is held in a local until the call is over.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from poot.backends.kept import Kept
from poot.backends.vulkan.api import (
    Binding,
    Block,
    Dispatch,
    Handle,
    Handles,
    Pipeline,
    Recording,
    Shader,
)
from poot.backends.vulkan.loader import MISSING, vk
from poot.backends.vulkan.properties import Physical, read_physical
from poot.errors import (
    BackendError,
    BackendUnavailable,
    DeviceLost,
    LaunchError,
    OutOfDeviceMemory,
)
from poot.limits import DeviceLimits

NO_DRIVER = (
    "the Vulkan loader finds no driver: install the GPU's, or apt-get install mesa-vulkan-drivers "
    "for software Vulkan"
)
VALIDATION = "VK_LAYER_KHRONOS_validation"
WAIT_NS = 1_000_000_000


@contextmanager
def translated(what: str) -> Generator[None]:
    """Vulkan's errors as poot's, with what was being done."""
    try:
        yield
    except (vk.VkErrorOutOfDeviceMemory, vk.VkErrorOutOfHostMemory) as e:
        raise OutOfDeviceMemory(f"{what}: the driver is out of memory ({type(e).__name__})") from e
    except vk.VkErrorDeviceLost as e:
        raise DeviceLost(f"{what}: the device is lost; open it anew, a new session works") from e
    except vk.VkError as e:
        raise BackendError(f"{what}: {type(e).__name__}") from e


@dataclass(frozen=True, slots=True)
class Instance:
    """A VkInstance, its physical devices, and what its validation layer has said."""

    handle: object
    physical: tuple[object, ...]
    messages: list[str]


# One instance a process (one more with validation), one VkDevice a physical device and instance.
_LOCK = threading.RLock()
_INSTANCES: dict[bool, Instance] = {}
_DRIVERS: dict[tuple[int, bool], VulkanDriver] = {}


def instance(validation: bool = False) -> Instance:
    """The process's instance. Raises BackendUnavailable with what to install."""
    if vk is None:
        raise BackendUnavailable(MISSING)
    with _LOCK:
        if validation not in _INSTANCES:
            _INSTANCES[validation] = _create_instance(validation)
        return _INSTANCES[validation]


def _create_instance(validation: bool) -> Instance:
    layers = [VALIDATION] if validation else []
    extensions = [vk.VK_EXT_DEBUG_UTILS_EXTENSION_NAME] if validation else []
    app = vk.VkApplicationInfo(pApplicationName="poot", apiVersion=vk.VK_MAKE_VERSION(1, 1, 0))
    info = vk.VkInstanceCreateInfo(
        pApplicationInfo=app, ppEnabledLayerNames=layers, ppEnabledExtensionNames=extensions
    )
    try:
        handle = vk.vkCreateInstance(info, None)
        physical = tuple(vk.vkEnumeratePhysicalDevices(handle))
    except vk.VkErrorLayerNotPresent as e:
        raise BackendUnavailable(
            f"{VALIDATION} is not there: apt-get install vulkan-validationlayers"
        ) from e
    except vk.VkError as e:
        raise BackendUnavailable(f"{NO_DRIVER} ({type(e).__name__})") from e
    if not physical:
        raise BackendUnavailable(NO_DRIVER)
    messages: list[str] = []
    if validation:
        _listen(handle, messages)
    return Instance(handle, physical, messages)


def _listen(handle: object, messages: list[str]) -> None:
    def heard(*said: object) -> int:
        data: Any = said[2]
        messages.append(vk.ffi.string(data.pMessage).decode())
        return 0

    create = vk.vkGetInstanceProcAddr(handle, "vkCreateDebugUtilsMessengerEXT")
    info = vk.VkDebugUtilsMessengerCreateInfoEXT(
        messageSeverity=vk.VK_DEBUG_UTILS_MESSAGE_SEVERITY_ERROR_BIT_EXT
        | vk.VK_DEBUG_UTILS_MESSAGE_SEVERITY_WARNING_BIT_EXT,
        messageType=vk.VK_DEBUG_UTILS_MESSAGE_TYPE_VALIDATION_BIT_EXT,
        pfnUserCallback=heard,
    )
    create(handle, info, None)


def physical_devices(validation: bool = False) -> list[Physical]:
    """Every physical device, in the loader's order."""
    found = instance(validation)
    return [read_physical(found.handle, p) for p in found.physical]


def connect(index: int, validation: bool = False) -> VulkanDriver:
    """The process's one device for a physical device; a lost one is replaced."""
    with _LOCK:
        found = instance(validation)
        if not 0 <= index < len(found.physical):
            raise BackendUnavailable(
                f"there is no vulkan:{index}: the loader finds {len(found.physical)} devices"
            )
        driver = _DRIVERS.get((index, validation))
        if driver is None or driver.is_lost:
            driver = _DRIVERS[index, validation] = VulkanDriver(found, index)
        return driver


class VulkanDriver:
    """One VkDevice and its compute queue. A lock orders calls; waiting is done outside it."""

    def __init__(self, found: Instance, index: int) -> None:
        self._physical = read_physical(found.handle, found.physical[index])
        self.messages = found.messages
        self.is_lost = False
        self._lock = threading.RLock()
        self._pipelines: Kept[Pipeline] = Kept(self._destroy_pipeline)
        self._allocated = 0
        features = self._physical.features()
        queue = vk.VkDeviceQueueCreateInfo(
            queueFamilyIndex=self._physical.family, pQueuePriorities=[1.0]
        )
        info = vk.VkDeviceCreateInfo(
            pNext=features,
            pQueueCreateInfos=[queue],
            ppEnabledExtensionNames=list(self._physical.extensions),
        )
        with translated(f"opening {self._physical.limits.name}"):
            self._device = vk.vkCreateDevice(self._physical.handle, info, None)
            self._queue = vk.vkGetDeviceQueue(self._device, self._physical.family, 0)
            pool = vk.VkCommandPoolCreateInfo(
                flags=vk.VK_COMMAND_POOL_CREATE_RESET_COMMAND_BUFFER_BIT,
                queueFamilyIndex=self._physical.family,
            )
            self._pool = vk.vkCreateCommandPool(self._device, pool, None)
            self._cache = vk.vkCreatePipelineCache(
                self._device, vk.VkPipelineCacheCreateInfo(), None
            )

    @property
    def limits(self) -> DeviceLimits:
        return self._physical.limits

    @property
    def description(self) -> str:
        return self._physical.description

    @property
    def is_direct(self) -> bool:
        return self._physical.is_direct

    @contextmanager
    def _call(self, what: str) -> Generator[None]:
        with self._lock:
            if self.is_lost:
                raise DeviceLost(f"{what}: the device is lost; open it anew")
            try:
                with translated(what):
                    yield
            except DeviceLost:
                self.is_lost = True
                raise

    @property
    def handles(self) -> Handles:
        p = self._physical
        return Handles(p.handle, self._device, self._queue, p.family)

    # Memory

    def adopted(self, handle: object, label: str) -> Handle:
        if isinstance(handle, vk.ffi.CData) and handle != vk.ffi.NULL:
            return handle
        if type(handle) is int and 0 < handle < 1 << 64:
            made: object = vk.ffi.cast("VkBuffer", handle)
            return made
        raise BackendError(f"{label} needs a VkBuffer, or its number: got {handle!r}")

    def free_nbytes(self) -> int:
        return max(0, self.limits.memory_nbytes - self._allocated)

    def allocate(self, nbytes: int, mapped: bool, label: str) -> Block:
        usage = (
            vk.VK_BUFFER_USAGE_STORAGE_BUFFER_BIT
            | vk.VK_BUFFER_USAGE_UNIFORM_BUFFER_BIT
            | vk.VK_BUFFER_USAGE_TRANSFER_SRC_BIT
            | vk.VK_BUFFER_USAGE_TRANSFER_DST_BIT
        )
        what = f"allocating {nbytes} bytes for {label}, {self.free_nbytes()} thought free"
        with self._call(what):
            info = vk.VkBufferCreateInfo(size=nbytes, usage=usage)
            buffer = vk.vkCreateBuffer(self._device, info, None)
            memory = None
            try:
                need = vk.vkGetBufferMemoryRequirements(self._device, buffer)
                kind = self._physical.memory_type(mapped, need.memoryTypeBits)
                order = vk.VkMemoryAllocateInfo(allocationSize=need.size, memoryTypeIndex=kind)
                memory = vk.vkAllocateMemory(self._device, order, None)
                vk.vkBindBufferMemory(self._device, buffer, memory, 0)
                view = None
                if mapped or self.is_direct:
                    raw = vk.vkMapMemory(self._device, memory, 0, nbytes, 0)
                    view = np.frombuffer(raw, np.uint8)
            except vk.VkError:
                vk.vkDestroyBuffer(self._device, buffer, None)
                if memory is not None:
                    vk.vkFreeMemory(self._device, memory, None)
                raise
            self._allocated += nbytes
        return Block(nbytes, buffer, memory, view)

    def free(self, block: Block) -> None:
        with self._lock:
            vk.vkDestroyBuffer(self._device, block.buffer, None)
            vk.vkFreeMemory(self._device, block.memory, None)
            self._allocated -= block.nbytes

    def zero(self, block: Block) -> None:
        def fill(commands: object) -> None:
            vk.vkCmdFillBuffer(commands, block.buffer, 0, block.nbytes // 4 * 4, 0)

        self._once(fill, "zeroing a buffer")

    def copy(self, source: Binding, target: Binding) -> None:
        region = vk.VkBufferCopy(
            srcOffset=source.offset, dstOffset=target.offset, size=source.nbytes
        )

        def move(commands: object) -> None:
            vk.vkCmdCopyBuffer(commands, source.block.buffer, target.block.buffer, 1, [region])

        self._once(move, f"copying {source.nbytes} bytes")

    def _once(self, record: Callable[[object], None], what: str) -> None:
        with self._call(what):
            commands = self._begin()
            record(commands)
            self._end(commands)
            fence = vk.vkCreateFence(self._device, vk.VkFenceCreateInfo(), None)
            done = Recording(commands, None, fence, None, 0)
        try:
            self.run(done, what)
        finally:
            self.release(done)

    # Pipelines

    def pipeline(self, shader: Shader) -> Pipeline:
        with self._lock:
            return self._pipelines.take(shader, lambda: self._new_pipeline(shader))

    def _new_pipeline(self, shader: Shader) -> Pipeline:
        what = f"kernel {shader.name}"
        try:
            with self._call(what):
                return self._make_pipeline(shader)
        except (OutOfDeviceMemory, DeviceLost):
            raise
        except BackendError as e:
            raise LaunchError(f"the driver refuses {e.message}") from e

    def _make_pipeline(self, shader: Shader) -> Pipeline:
        device = self._device
        kinds = [vk.VK_DESCRIPTOR_TYPE_STORAGE_BUFFER] * shader.buffers
        kinds += [vk.VK_DESCRIPTOR_TYPE_UNIFORM_BUFFER] * shader.has_uniform
        bindings = [
            vk.VkDescriptorSetLayoutBinding(
                binding=at,
                descriptorType=kind,
                descriptorCount=1,
                stageFlags=vk.VK_SHADER_STAGE_COMPUTE_BIT,
            )
            for at, kind in enumerate(kinds)
        ]
        set_info = vk.VkDescriptorSetLayoutCreateInfo(pBindings=bindings)
        set_layout = vk.vkCreateDescriptorSetLayout(device, set_info, None)
        layout_info = vk.VkPipelineLayoutCreateInfo(pSetLayouts=[set_layout])
        layout = vk.vkCreatePipelineLayout(device, layout_info, None)
        code = vk.VkShaderModuleCreateInfo(codeSize=len(shader.binary), pCode=shader.binary)
        module = None
        try:
            module = vk.vkCreateShaderModule(device, code, None)
            width, flags = self._physical.required_subgroup(shader.subgroup)
            stage = vk.VkPipelineShaderStageCreateInfo(
                pNext=width,
                flags=flags,
                stage=vk.VK_SHADER_STAGE_COMPUTE_BIT,
                module=module,
                pName="main",
            )
            info = vk.VkComputePipelineCreateInfo(stage=stage, layout=layout, basePipelineIndex=-1)
            made = vk.vkCreateComputePipelines(device, self._cache, 1, [info], None)[0]
        except vk.VkError:
            vk.vkDestroyPipelineLayout(device, layout, None)
            vk.vkDestroyDescriptorSetLayout(device, set_layout, None)
            raise
        finally:
            if module is not None:
                vk.vkDestroyShaderModule(device, module, None)
        return Pipeline(shader, made, layout, set_layout)

    def destroy(self, pipeline: Pipeline) -> None:
        with self._lock:
            self._pipelines.give(pipeline.shader)

    def _destroy_pipeline(self, pipeline: Pipeline) -> None:
        vk.vkDestroyPipeline(self._device, pipeline.pipeline, None)
        vk.vkDestroyPipelineLayout(self._device, pipeline.layout, None)
        vk.vkDestroyDescriptorSetLayout(self._device, pipeline.set_layout, None)

    # Recordings

    def _begin(self) -> object:
        info = vk.VkCommandBufferAllocateInfo(
            commandPool=self._pool,
            level=vk.VK_COMMAND_BUFFER_LEVEL_PRIMARY,
            commandBufferCount=1,
        )
        commands = vk.vkAllocateCommandBuffers(self._device, info)[0]
        vk.vkBeginCommandBuffer(commands, vk.VkCommandBufferBeginInfo())
        self._barrier(commands)
        return commands

    def _end(self, commands: object) -> None:
        self._barrier(commands, to_host=True)
        vk.vkEndCommandBuffer(commands)

    def _barrier(self, commands: object, to_host: bool = False) -> None:
        work = vk.VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT | vk.VK_PIPELINE_STAGE_TRANSFER_BIT
        writes = vk.VK_ACCESS_SHADER_WRITE_BIT | vk.VK_ACCESS_TRANSFER_WRITE_BIT
        reads = vk.VK_ACCESS_SHADER_READ_BIT | vk.VK_ACCESS_TRANSFER_READ_BIT
        after = vk.VK_PIPELINE_STAGE_HOST_BIT if to_host else work
        then = vk.VK_ACCESS_HOST_READ_BIT if to_host else reads | writes
        barrier = vk.VkMemoryBarrier(srcAccessMask=writes, dstAccessMask=then)
        vk.vkCmdPipelineBarrier(commands, work, after, 0, 1, [barrier], 0, None, 0, None)

    def record(self, dispatches: Sequence[Dispatch], timed: bool) -> Recording:
        with self._call(f"recording {len(dispatches)} launches"):
            descriptors, sets = self._descriptors(dispatches)
            queries = None
            if timed and self._physical.timestamp_us:
                info = vk.VkQueryPoolCreateInfo(
                    queryType=vk.VK_QUERY_TYPE_TIMESTAMP, queryCount=len(dispatches) + 1
                )
                queries = vk.vkCreateQueryPool(self._device, info, None)
            commands = self._begin()
            if queries is not None:
                vk.vkCmdResetQueryPool(commands, queries, 0, len(dispatches) + 1)
                self._stamp(commands, queries, 0)
            for at, (dispatch, bound) in enumerate(zip(dispatches, sets, strict=True)):
                if dispatch.waits or (queries is not None and at):
                    self._barrier(commands)
                self._dispatch(commands, dispatch, bound)
                if queries is not None:
                    self._stamp(commands, queries, at + 1)
            self._end(commands)
            fence = vk.vkCreateFence(self._device, vk.VkFenceCreateInfo(), None)
            return Recording(commands, descriptors, fence, queries, len(dispatches))

    def _stamp(self, commands: object, queries: object, at: int) -> None:
        stage = vk.VK_PIPELINE_STAGE_BOTTOM_OF_PIPE_BIT
        vk.vkCmdWriteTimestamp(commands, stage, queries, at)

    def _dispatch(self, commands: object, dispatch: Dispatch, bound: object) -> None:
        point = vk.VK_PIPELINE_BIND_POINT_COMPUTE
        pipeline = dispatch.pipeline
        vk.vkCmdBindPipeline(commands, point, pipeline.pipeline)
        vk.vkCmdBindDescriptorSets(commands, point, pipeline.layout, 0, 1, [bound], 0, None)
        vk.vkCmdDispatch(commands, *dispatch.grid)

    def _descriptors(self, dispatches: Sequence[Dispatch]) -> tuple[object, list[object]]:
        """A pool that holds one written set a dispatch."""
        counts = {
            vk.VK_DESCRIPTOR_TYPE_STORAGE_BUFFER: sum(len(d.bindings) for d in dispatches),
            vk.VK_DESCRIPTOR_TYPE_UNIFORM_BUFFER: sum(d.uniform is not None for d in dispatches),
        }
        sizes = [
            vk.VkDescriptorPoolSize(type=kind, descriptorCount=count)
            for kind, count in counts.items()
            if count
        ]
        if not sizes:
            return None, [None] * len(dispatches)
        info = vk.VkDescriptorPoolCreateInfo(maxSets=len(dispatches), pPoolSizes=sizes)
        pool = vk.vkCreateDescriptorPool(self._device, info, None)
        layouts = [d.pipeline.set_layout for d in dispatches]
        order = vk.VkDescriptorSetAllocateInfo(descriptorPool=pool, pSetLayouts=layouts)
        sets = list(vk.vkAllocateDescriptorSets(self._device, order))
        for dispatch, bound in zip(dispatches, sets, strict=True):
            self._write_set(dispatch, bound)
        return pool, sets

    def _write_set(self, dispatch: Dispatch, bound: object) -> None:
        rows = [(b, vk.VK_DESCRIPTOR_TYPE_STORAGE_BUFFER) for b in dispatch.bindings]
        if dispatch.uniform is not None:
            rows.append((dispatch.uniform, vk.VK_DESCRIPTOR_TYPE_UNIFORM_BUFFER))
        infos = [
            vk.VkDescriptorBufferInfo(buffer=b.block.buffer, offset=b.offset, range=b.nbytes)
            for b, _ in rows
        ]
        writes = [
            vk.VkWriteDescriptorSet(
                dstSet=bound,
                dstBinding=at,
                descriptorCount=1,
                descriptorType=kind,
                pBufferInfo=[info],
            )
            for at, (info, (_, kind)) in enumerate(zip(infos, rows, strict=True))
        ]
        if writes:
            vk.vkUpdateDescriptorSets(self._device, len(writes), writes, 0, None)

    def run(self, recording: Recording, what: str) -> None:
        submit = vk.VkSubmitInfo(pCommandBuffers=[recording.commands])
        with self._call(what):
            vk.vkResetFences(self._device, 1, [recording.fence])
            vk.vkQueueSubmit(self._queue, 1, [submit], recording.fence)
        try:
            with translated(what):
                self._wait(recording.fence)
        except DeviceLost:
            self.is_lost = True
            raise

    def _wait(self, fence: object) -> None:
        while True:
            try:
                vk.vkWaitForFences(self._device, 1, [fence], vk.VK_TRUE, WAIT_NS)
                return
            except vk.VkTimeout:
                continue

    def times(self, recording: Recording) -> list[float]:
        if recording.queries is None:
            return [float("nan")] * recording.count
        count = recording.count + 1
        raw = vk.ffi.new(f"uint64_t[{count}]")
        flags = vk.VK_QUERY_RESULT_64_BIT | vk.VK_QUERY_RESULT_WAIT_BIT
        with self._call("reading timestamps"):
            vk.vkGetQueryPoolResults(
                self._device, recording.queries, 0, count, 8 * count, raw, 8, flags
            )
        stamps = [int(raw[at]) for at in range(count)]
        step = self._physical.timestamp_us
        return [(b - a) * step for a, b in pairwise(stamps)]

    def release(self, recording: Recording) -> None:
        with self._lock:
            vk.vkFreeCommandBuffers(self._device, self._pool, 1, [recording.commands])
            vk.vkDestroyFence(self._device, recording.fence, None)
            if recording.descriptors is not None:
                vk.vkDestroyDescriptorPool(self._device, recording.descriptors, None)
            if recording.queries is not None:
                vk.vkDestroyQueryPool(self._device, recording.queries, None)
