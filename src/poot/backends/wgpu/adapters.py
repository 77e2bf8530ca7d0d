"""wgpu's adapters, what each can do, and the process's one wgpu device for each."""

from __future__ import annotations

import importlib
import os
import threading
from collections import deque
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from poot.backends.kept import Kept
from poot.backends.launches import refuse_more
from poot.backends.wgpu.loader import MISSING, wgpu
from poot.errors import BackendUnavailable
from poot.limits import LLVMPIPE_TRIPS, DeviceLimits

NATIVE = ("Vulkan", "Metal", "D3D12")
NO_ADAPTER = (
    "wgpu finds no Vulkan, Metal or D3D12 adapter: install the GPU's driver, or apt-get install "
    "mesa-vulkan-drivers libvulkan1 for software Vulkan"
)
# WebGPU tells no memory size and no count of compute units.
UNTOLD_NBYTES = 16 << 30
UNTOLD_UNITS = 32
# What kernels need besides storage: one bind group, one uniform block.
BASELINE_REST = {
    "max-bind-groups": 4,
    "max-bindings-per-bind-group": 1000,
    "max-uniform-buffers-per-shader-stage": 12,
    "max-uniform-buffer-binding-size": 65536,
    "min-uniform-buffer-offset-alignment": 256,
}


@dataclass(frozen=True, slots=True)
class Adapter:
    """An adapter with the limits that a device asked for in full will have.

    `kind` is the API behind it, "Vulkan" and such."""

    handle: object
    limits: DeviceLimits
    description: str
    features: tuple[str, ...]
    kind: str


@dataclass(frozen=True, slots=True)
class Gpu:
    """A wgpu device, its limits, the lock that orders calls into it, and its pipelines.

    The garbage collector may run in any thread, wgpu's own among them, in the middle of anything:
    what it drops is put into `dropped`, and given back by the next who enters `held`."""

    device: object
    limits: DeviceLimits
    description: str
    has_timestamps: bool
    timestamp_us: float
    lock: threading.RLock
    pipelines: Kept[object]
    dropped: deque[Callable[[], None]] = field(default_factory=deque[Callable[[], None]])

    @contextmanager
    def held(self) -> Generator[None]:
        """The lock, once everything dropped has been given back."""
        with self.lock:
            while self.dropped:
                self.dropped.popleft()()
            yield


_LOCK = threading.RLock()
_ADAPTERS: list[Adapter] = []
_GPUS: dict[tuple[int, str], Gpu] = {}


def read_adapters() -> list[Adapter]:
    """The native adapters, in wgpu's order; OpenGL is left out. Raises BackendUnavailable."""
    if wgpu is None:
        raise BackendUnavailable(MISSING)
    with _LOCK:
        if not _ADAPTERS:
            _ADAPTERS.extend(a for a in map(_read, _enumerate()) if a.kind in NATIVE)
        if not _ADAPTERS:
            raise BackendUnavailable(NO_ADAPTER)
        return list(_ADAPTERS)


def _enumerate() -> list[object]:
    """Asks only for native backends, where wgpu has not been used before in this process."""
    extras: Any = importlib.import_module("wgpu.backends.wgpu_native.extras")
    try:
        extras.set_instance_extras(backends=["Vulkan", "Metal", "DX12"])
    except RuntimeError:
        return list(wgpu.gpu.enumerate_adapters_sync())
    return list(wgpu.gpu.enumerate_adapters_sync())


def _read(handle: object) -> Adapter:
    adapter: Any = handle
    info, features = adapter.info, tuple(sorted(adapter.features))
    text = f"{info['device']}, {info['description']}, by wgpu on {info['backend_type']}"
    limits = _limits(dict(info), dict(adapter.limits), features)
    return Adapter(handle, limits, text, features, info["backend_type"])


def _limits(
    info: dict[str, object], most: dict[str, int], features: tuple[str, ...]
) -> DeviceLimits:
    """An adapter's whole limits. Subgroups count where their width is one number."""
    is_software = info["adapter_type"] == "CPU"
    low, high = info.get("stackgroup_min_size"), info.get("stackgroup_max_size")
    fixed = low if isinstance(low, int) and low == high and "subgroup" in features else 0
    groups = most["max-compute-workgroups-per-dimension"]
    buffer_nbytes = most["max-buffer-size"] // 16 * 16
    lanes = (most["max-compute-invocations-per-workgroup"], most["max-compute-workgroup-size-x"])
    return DeviceLimits(
        name=f"wgpu {info['device']}",
        target="spirv",
        workgroup_nbytes=most["max-compute-workgroup-storage-size"],
        threads=min(lanes),
        grid=(groups, groups, groups),
        compute_units=(os.cpu_count() or 1) if is_software else UNTOLD_UNITS,
        subgroup=fixed,
        buffer_nbytes=buffer_nbytes,
        binding_nbytes=min(most["max-storage-buffer-binding-size"], buffer_nbytes),
        storage_buffers=most["max-storage-buffers-per-shader-stage"],
        memory_nbytes=_host_nbytes() if is_software else UNTOLD_NBYTES,
        offset_align=max(16, most["min-storage-buffer-offset-alignment"]),
        has_f16_storage="shader-f16" in features,
        has_i64="shader-int64" in features,
        is_software=is_software,
        loop_trips=LLVMPIPE_TRIPS if "llvmpipe" in str(info["device"]) else 0,
    )


def _host_nbytes() -> int:
    """The host's memory, where POSIX tells it."""
    if not hasattr(os, "sysconf"):
        return UNTOLD_NBYTES
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def _asked(limits: DeviceLimits) -> dict[str, int]:
    """WebGPU's limits for a device with these numbers, each asked for by name."""
    return {
        "max-compute-workgroup-storage-size": limits.workgroup_nbytes,
        "max-compute-invocations-per-workgroup": limits.threads,
        "max-compute-workgroup-size-x": limits.threads,
        "max-compute-workgroup-size-y": limits.threads,
        "max-compute-workgroup-size-z": min(64, limits.threads),
        "max-compute-workgroups-per-dimension": min(limits.grid),
        "max-buffer-size": limits.buffer_nbytes,
        "max-storage-buffer-binding-size": limits.binding_nbytes,
        "max-storage-buffers-per-shader-stage": limits.storage_buffers,
        "min-storage-buffer-offset-alignment": max(32, limits.offset_align),
        **BASELINE_REST,
    }


def connect(index: int, limits: DeviceLimits | None = None) -> Gpu:
    """The process's device on an adapter, with the adapter's own limits or exactly those asked."""
    with _LOCK:
        found = read_adapters()
        if not 0 <= index < len(found):
            raise BackendUnavailable(f"there is no wgpu:{index}: wgpu finds {len(found)} adapters")
        adapter = found[index]
        wanted = limits or adapter.limits
        refuse_more(wanted, adapter.limits)
        key = (index, str(wanted))
        if key not in _GPUS:
            _GPUS[key] = _request(adapter, wanted)
        return _GPUS[key]


def _request(adapter: Adapter, limits: DeviceLimits) -> Gpu:
    wishes = {
        "shader-f16": limits.has_f16_storage,
        "shader-int64": limits.has_i64,
        "subgroup": bool(limits.subgroup),
        "subgroup-barrier": bool(limits.subgroup),
        "timestamp-query": True,
    }
    features = [name for name, wish in wishes.items() if wish and name in adapter.features]
    handle: Any = adapter.handle
    try:
        device = handle.request_device_sync(
            label="poot", required_features=features, required_limits=_asked(limits)
        )
    except (RuntimeError, wgpu.GPUError) as e:
        raise BackendUnavailable(f"wgpu gives no device on {adapter.description}: {e}") from e
    stamps = "timestamp-query" in features
    step = _timestamp_us(device) if stamps else 0.0
    align = device.limits["min-storage-buffer-offset-alignment"]
    given = replace(
        limits,
        offset_align=max(limits.offset_align, align),
        loop_trips=adapter.limits.loop_trips,
    )
    return Gpu(device, given, adapter.description, stamps, step, threading.RLock(), Kept(_let_go))


def _let_go(pipeline: object) -> None:
    """Nothing: a wgpu object goes with its last reference."""


def _timestamp_us(device: object) -> float:
    native: Any = importlib.import_module("wgpu.backends.wgpu_native")
    gpu: Any = device
    return float(native.lib.wgpuQueueGetTimestampPeriod(gpu.queue._internal)) / 1000.0
