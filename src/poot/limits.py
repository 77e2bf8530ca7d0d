"""What a device can do, as numbers: DeviceLimits, and profiles for compiling without the device."""

from __future__ import annotations

from dataclasses import dataclass, fields

from poot.errors import BackendUnavailable


@dataclass(frozen=True, slots=True)
class DeviceLimits:
    """Everything the passes, the planner and the generators may know of a device. Sizes in bytes.

    `target` is the emitter ("spirv", "ptx", "hip", "llvm", or "oracle"); `subgroup` the width
    kernels may count on, 0 where subgroup ops can't be used. `vector` is a CPU's f32 lanes in a
    vector; GPUs have 1. `loop_trips` is how often a lane may go round its loops, all together,
    before the driver ends them without a word; 0 where it never does. `counts_residents`: it is
    known how many groups of a kernel are resident at once, so that they may wait for one another.
    `matrix_dtypes` are those of which a subgroup multiplies 16x16 matrices, with sums in f32, where
    the target has no `has_matrix_units`. `has_tensor_maps`: launches may bring descriptions of
    tensors, by which whole boxes are copied.
    """

    name: str
    target: str
    workgroup_nbytes: int
    threads: int
    grid: tuple[int, int, int]
    compute_units: int
    subgroup: int
    buffer_nbytes: int
    binding_nbytes: int
    storage_buffers: int
    memory_nbytes: int
    offset_align: int = 256
    has_f16_storage: bool = False
    has_i64: bool = False
    has_matrix_units: bool = False
    has_async_copy: bool = False
    arch: str = ""
    vector: int = 1
    cores: int = 1
    caches: tuple[int, int, int] = (0, 0, 0)
    is_software: bool = False
    loop_trips: int = 0
    counts_residents: bool = False
    has_tensor_maps: bool = False
    matrix_dtypes: tuple[str, ...] = ()

    @property
    def has_f16_matrices(self) -> bool:
        return "f16" in self.matrix_dtypes

    @property
    def has_bf16_matrices(self) -> bool:
        return "bf16" in self.matrix_dtypes

    def __str__(self) -> str:
        return "\n".join(f"{f.name} {getattr(self, f.name)}" for f in fields(self))


_GIB = 1 << 30
# HIP refuses launches of 2^32 lanes on an axis (HIP API, hipModuleLaunchKernel): groups of 1024.
_HIP_GROUPS = ((1 << 32) - 1) // 1024
# Mesa's llvmpipe ends every loop of a lane after so many trips in all (measured on 22.3 by
# tests/codegen/spirv/test_control.py): results are wrong, and nothing says so.
LLVMPIPE_TRIPS = 65535

PROFILES: dict[str, DeviceLimits] = {
    p.name: p
    for p in (
        # WebGPU specification, section "Limits", default values.
        DeviceLimits(
            "webgpu-baseline",
            "spirv",
            workgroup_nbytes=16384,
            threads=256,
            grid=(65535, 65535, 65535),
            compute_units=16,
            subgroup=0,
            buffer_nbytes=256 << 20,
            binding_nbytes=128 << 20,
            storage_buffers=8,
            memory_nbytes=4 * _GIB,
        ),
        # Mesa 22.3 llvmpipe on Debian 12, as its driver reports it.
        DeviceLimits(
            "lavapipe",
            "spirv",
            workgroup_nbytes=32768,
            threads=1024,
            grid=(65535, 65535, 65535),
            compute_units=2,
            subgroup=8,
            buffer_nbytes=1 << 31,
            binding_nbytes=128 << 20,
            storage_buffers=16,
            memory_nbytes=8 * _GIB,
            offset_align=64,
            has_f16_storage=True,
            is_software=True,
            loop_trips=LLVMPIPE_TRIPS,
        ),
        # CUDA C++ Programming Guide, technical specifications of compute capability 9.0.
        DeviceLimits(
            "h200",
            "ptx",
            workgroup_nbytes=232448,
            threads=1024,
            grid=(2147483647, 65535, 65535),
            compute_units=132,
            subgroup=32,
            buffer_nbytes=140 * _GIB,
            binding_nbytes=140 * _GIB,
            storage_buffers=64,
            memory_nbytes=140 * _GIB,
            offset_align=256,
            has_f16_storage=True,
            has_i64=True,
            has_matrix_units=True,
            has_async_copy=True,
            arch="sm_90a",
            counts_residents=True,
            has_tensor_maps=True,
        ),
        # AMD CDNA 3 ISA guide and HIP device properties.
        DeviceLimits(
            "mi300x",
            "hip",
            workgroup_nbytes=65536,
            threads=1024,
            grid=(_HIP_GROUPS, 65535, 65535),
            compute_units=304,
            subgroup=64,
            buffer_nbytes=190 * _GIB,
            binding_nbytes=190 * _GIB,
            storage_buffers=64,
            memory_nbytes=190 * _GIB,
            has_f16_storage=True,
            has_i64=True,
            arch="gfx942",
            matrix_dtypes=("bf16", "f16"),
        ),
        DeviceLimits(
            "rdna3",
            "hip",
            workgroup_nbytes=65536,
            threads=1024,
            grid=(_HIP_GROUPS, 65535, 65535),
            compute_units=96,
            subgroup=32,
            buffer_nbytes=24 * _GIB,
            binding_nbytes=24 * _GIB,
            storage_buffers=64,
            memory_nbytes=24 * _GIB,
            has_f16_storage=True,
            has_i64=True,
            arch="gfx1100",
            matrix_dtypes=("bf16", "f16"),
        ),
        DeviceLimits(
            "cpu-avx2",
            "llvm",
            workgroup_nbytes=262144,
            threads=256,
            grid=((1 << 31) - 1, 65535, 65535),
            compute_units=2,
            subgroup=8,
            buffer_nbytes=64 * _GIB,
            binding_nbytes=64 * _GIB,
            storage_buffers=256,
            memory_nbytes=16 * _GIB,
            offset_align=64,
            has_f16_storage=True,
            has_i64=True,
            arch="x86-64-v3",
            vector=8,
            cores=2,
            caches=(32768, 524288, 16 << 20),
        ),
        DeviceLimits(
            "oracle",
            "oracle",
            workgroup_nbytes=1 << 40,
            threads=1,
            grid=(1 << 62, 1, 1),
            compute_units=1,
            subgroup=0,
            buffer_nbytes=1 << 62,
            binding_nbytes=1 << 62,
            storage_buffers=1 << 20,
            memory_nbytes=1 << 62,
        ),
    )
}


def profile(name: str) -> DeviceLimits:
    """The named profile. Raises BackendUnavailable with the list of names."""
    if name not in PROFILES:
        raise BackendUnavailable(
            f"there is no limits profile {name!r}; profiles: {', '.join(sorted(PROFILES))}"
        )
    return PROFILES[name]
