"""What every GPU backend does to a launch list before its driver sees it: checks, immediates,
and which launches need what ran before them to be done."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass

from poot.backends.base import BufferRef, Launch
from poot.codegen.attributes import ONE, TensorView
from poot.codegen.kir.nodes import ELEMENT_BYTES, Kernel
from poot.errors import BackendUnavailable, BindingLimit, GridLimit, LaunchError
from poot.limits import DeviceLimits

# Bindings end on whole vectors of four words, and allocations are padded to them.
BINDING_QUANTUM = 16
# Vulkan and WebGPU both promise that uniform blocks may start at multiples of this.
UNIFORM_ALIGN = 256


# What a device narrowed to other limits may not be given more of.
_NARROWED = ("workgroup_nbytes", "threads", "buffer_nbytes", "binding_nbytes", "storage_buffers",
             "has_f16_storage", "has_i64")  # fmt: skip


def refuse_more(limits: DeviceLimits, there: DeviceLimits) -> None:
    """Raises BackendUnavailable where the limits ask for more than the device has."""
    for name in _NARROWED:
        asked, most = int(getattr(limits, name)), int(getattr(there, name))
        if asked > most:
            raise BackendUnavailable(f"{limits.name} asks {name} {asked}: {there.name} has {most}")
    if limits.subgroup not in (0, there.subgroup):
        raise BackendUnavailable(
            f"{limits.name} asks subgroups of {limits.subgroup}: {there.name} has {there.subgroup}"
        )


def padded(nbytes: int) -> int:
    """Bytes to allocate for a buffer of `nbytes`: at least one quantum, whole quanta."""
    return max(BINDING_QUANTUM, -(-nbytes // BINDING_QUANTUM) * BINDING_QUANTUM)


# What a device may be able to do for a launch, by the names of `check_launch`'s `can`.
CLUSTER, RESIDENT, MAPS = "cluster", "resident", "maps"


def check_launch(
    launch: Launch,
    kernel: Kernel,
    sizes: dict[str, int],
    limits: DeviceLimits,
    can: frozenset[str] = frozenset(),
) -> None:
    """Raises LaunchError, GridLimit or BindingLimit, naming the kernel and the numbers. `can` names
    what the device can do of CLUSTER, RESIDENT and MAPS."""
    if len(launch.buffers) != len(kernel.params) or len(launch.imms) != len(kernel.imms):
        raise LaunchError(
            f"kernel {kernel.name} takes {len(kernel.params)} buffers and {len(kernel.imms)} "
            f"immediates: got {len(launch.buffers)} and {len(launch.imms)}"
        )
    for axis, (asked, most) in enumerate(zip(launch.grid, limits.grid, strict=True)):
        if not 0 <= asked <= most:
            raise GridLimit(
                f"kernel {kernel.name} asks {asked} groups on axis {axis}: "
                f"{limits.name} takes 0 to {most}"
            )
    for param, ref in zip(kernel.params, launch.buffers, strict=True):
        _check_ref(ref, f"kernel {kernel.name} {param.name}", sizes, limits)
    _check_attributes(launch, kernel, limits, can)
    for blob, (ref, view) in zip(kernel.blobs, launch.maps, strict=True):
        _check_ref(ref, f"kernel {kernel.name} {blob.name}", sizes, limits)
        _check_view(ref, view, f"kernel {kernel.name} {blob.name}", blob.dtype, len(blob.box))


def _check_attributes(
    launch: Launch, kernel: Kernel, limits: DeviceLimits, can: frozenset[str]
) -> None:
    asked = launch.attributes
    if len(launch.maps) != len(kernel.blobs):
        raise LaunchError(
            f"kernel {kernel.name} takes {len(kernel.blobs)} tensor maps: got {len(launch.maps)}"
        )
    wants = {
        CLUSTER: asked.cluster != ONE,
        RESIDENT: asked.is_resident,
        MAPS: bool(launch.maps),
    }
    for what, is_wanted in wants.items():
        if is_wanted and what not in can:
            raise LaunchError(f"kernel {kernel.name} asks {_ASKED[what]} {limits.name} has none")
    if any(n < 1 or g % n for g, n in zip(launch.grid, asked.cluster, strict=True)):
        raise GridLimit(
            f"kernel {kernel.name} asks clusters of {asked.cluster} groups: its grid "
            f"{launch.grid} is no multiple of that"
        )


_ASKED = {
    CLUSTER: "clusters of groups, and as it is driven",
    RESIDENT: "groups that are resident all at once, a count of which",
    MAPS: "tensor maps, and as it is driven",
}


def _check_view(ref: BufferRef, view: TensorView, who: str, dtype: str, rank: int) -> None:
    """A tensor lies inside its bytes, with as many axes as its box."""
    if not len(view.dims) == len(view.strides) == rank or view.strides[0] != 1:
        raise LaunchError(f"{who}: needs {rank} extents and strides, the first stride 1: {view}")
    last = sum((d - 1) * s for d, s in zip(view.dims, view.strides, strict=True))
    if min(view.dims) < 1 or (last + 1) * ELEMENT_BYTES[dtype] > ref.nbytes:
        raise LaunchError(f"{who}: {view} of {dtype} leaves its {ref.nbytes} bytes")


def _check_ref(ref: BufferRef, who: str, sizes: dict[str, int], limits: DeviceLimits) -> None:
    if ref.space not in sizes:
        raise LaunchError(f"{who}: there is no buffer {ref.space}: {', '.join(sorted(sizes))}")
    if ref.offset < 0 or ref.nbytes < 0 or ref.offset + ref.nbytes > sizes[ref.space]:
        raise LaunchError(
            f"{who}: bytes [{ref.offset}, {ref.offset + ref.nbytes}) of {ref.space}, "
            f"which has {sizes[ref.space]}"
        )
    if ref.offset % limits.offset_align:
        raise LaunchError(
            f"{who}: offset {ref.offset} of {ref.space} is no multiple of {limits.offset_align}"
        )
    if ref.nbytes > limits.binding_nbytes:
        raise BindingLimit(
            f"{who}: {ref.nbytes} bytes of {ref.space} are more than a binding of "
            f"{limits.name} holds, {limits.binding_nbytes}; split the value or choose a device "
            "with larger bindings"
        )


def binding_nbytes(ref: BufferRef, allocated: int, limits: DeviceLimits) -> int:
    """How many bytes to bind for a reference: whole quanta, within the allocation and the limit."""
    most = min(allocated - ref.offset, limits.binding_nbytes // BINDING_QUANTUM * BINDING_QUANTUM)
    return min(padded(ref.nbytes), most)


def pack_immediates(kernel: Kernel, imms: Sequence[int | float]) -> bytes:
    """The uniform block: 4 bytes each in order, padded to whole quanta."""
    letters = {"i32": "i", "u32": "I", "f32": "f"}
    layout = "<" + "".join(letters[i.dtype] for i in kernel.imms)
    try:
        raw = struct.pack(layout, *imms)
    except struct.error as e:
        raise LaunchError(f"kernel {kernel.name} immediates {imms}: {e}") from e
    return raw + b"\0" * (padded(len(raw)) - len(raw))


@dataclass(frozen=True, slots=True)
class Touch:
    """Bytes [start, stop) of a space that a launch touches."""

    space: str
    start: int
    stop: int
    writes: bool


def touches(launch: Launch, kernel: Kernel) -> list[Touch]:
    return [
        Touch(ref.space, ref.offset, ref.offset + ref.nbytes, param.access != "r")
        for param, ref in zip(kernel.params, launch.buffers, strict=True)
    ]


def _conflict(a: Touch, b: Touch) -> bool:
    return (a.writes or b.writes) and a.space == b.space and a.start < b.stop and b.start < a.stop


def waits(launches: Sequence[Launch], kernels: Sequence[Kernel]) -> list[bool]:
    """For each launch, whether what ran since the last wait has to be done before it starts.

    It has to where the two touch the same bytes and one of them writes."""
    since: list[Touch] = []
    out: list[bool] = []
    for launch in launches:
        own = touches(launch, kernels[launch.kernel])
        must = any(_conflict(a, b) for a in since for b in own)
        since = own if must else since + own
        out.append(must)
    return out
