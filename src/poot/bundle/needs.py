"""What a bundle needs of a device, as numbers, and whether a device has it."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass

from poot.backends.base import Launch
from poot.bundle.fields import Fields
from poot.codegen.code import Code
from poot.errors import CapabilityError, MemoryBudget
from poot.launch_lists import LaunchLists
from poot.limits import DeviceLimits

TARGETS = ("llvm", "spirv", "ptx", "hip")
# What kernels may use where the limits that they were compiled for have it.
_FLAGS = ("has_f16_storage", "has_i64", "has_matrix_units", "has_async_copy", "has_tensor_maps",
          "counts_residents", "has_f16_matrices", "has_bf16_matrices")  # fmt: skip
# Of what a device may have more than is needed.
_COUNTS = ("threads", "workgroup_nbytes", "storage_buffers", "binding_nbytes", "buffer_nbytes")
# The features that each level of the x86-64 psABI adds, of those that code is chosen by.
_LEVELS = (
    ("x86-64-v2", ("sse4.2",)),
    ("x86-64-v3", ("avx", "avx2", "fma", "f16c", "bmi", "bmi2")),
    ("x86-64-v4", ("avx512f", "avx512bw", "avx512dq", "avx512vl")),
)


@dataclass(frozen=True, slots=True)
class Needs:
    """Each field as in `limits.DeviceLimits`, and no more of it than the program uses. `subgroup`
    is 0 where any width is right, `memory_nbytes` what a session takes in all."""

    target: str
    arch: str
    subgroup: int
    grid: tuple[int, ...]
    threads: int
    workgroup_nbytes: int
    storage_buffers: int
    binding_nbytes: int
    buffer_nbytes: int
    memory_nbytes: int
    offset_align: int
    loop_trips: int
    flags: tuple[str, ...]


def needs_of(lists: LaunchLists, codes: Sequence[Code], limits: DeviceLimits) -> Needs:
    """What a program that was compiled for the limits needs."""
    every = [x for e in lists.lists.values() for x in (e, e.feed) if x is not None]
    launches = [x for e in every for x in e.launches]
    kernels = [c.kernel for c in codes]
    sizes = [nbytes for _, nbytes in lists.spaces]
    return Needs(
        limits.target,
        limits.arch,
        max((k.subgroup or 0 for k in kernels), default=0),
        tuple(max((x.grid[axis] for x in launches), default=0) for axis in range(3)),
        max((k.threads for k in kernels), default=0),
        max((k.shared_nbytes for k in kernels), default=0),
        max((len(k.params) for k in kernels), default=0),
        max((ref.nbytes for x in launches for ref in x.buffers), default=0),
        max(sizes, default=0),
        sum(sizes),
        limits.offset_align,
        _trips(codes, limits),
        tuple(name for name in _FLAGS if getattr(limits, name) and _uses(name, codes, launches)),
    )


def _trips(codes: Sequence[Code], limits: DeviceLimits) -> int:
    """The most trips of any kernel, where all were counted; else those of the limits."""
    counted = [c.trips for c in codes if c.trips is not None]
    return max([1, *counted]) if len(counted) == len(codes) else limits.loop_trips


# Features of SPIR-V that a device may lack, and the capabilities that a module declares for them
# (SPIR-V 1.3, section 3.31; Float16 is declared for matrices alone).
_CAPABILITIES = {"has_i64": (11,), "has_f16_storage": (4433, 4434),
                 "has_f16_matrices": (9,), "has_bf16_matrices": (5118,)}  # fmt: skip
_OP_CAPABILITY, _HEAD_WORDS = 17, 5


def _uses(name: str, codes: Sequence[Code], launches: Sequence[Launch]) -> bool:
    """Whether the program uses a feature; true where that can't be told from it."""
    if name == "has_tensor_maps":
        return any(c.kernel.blobs for c in codes)
    if name == "counts_residents":
        return any(x.attributes.is_resident for x in launches)
    if name in _CAPABILITIES and all(c.target == "spirv" for c in codes):
        return any(_declares(c.binary, _CAPABILITIES[name]) for c in codes)
    return True


def _declares(binary: bytes, capabilities: tuple[int, ...]) -> bool:
    """Whether a module's capabilities, which come first in it, are among these."""
    words = struct.unpack(f"<{len(binary) // 4}I", binary)
    at = _HEAD_WORDS
    while at + 1 < len(words) and words[at] & 0xFFFF == _OP_CAPABILITY:
        if words[at + 1] in capabilities:
            return True
        at += 2
    return False


def needs_json(needs: Needs) -> dict[str, object]:
    names = ("target", "arch", "subgroup", "threads", "workgroup_nbytes", "storage_buffers",
             "binding_nbytes", "buffer_nbytes", "memory_nbytes", "offset_align",
             "loop_trips")  # fmt: skip
    found: dict[str, object] = {name: getattr(needs, name) for name in names}
    return found | {"grid": list(needs.grid), "flags": list(needs.flags)}


def parse_needs(f: Fields) -> Needs:
    """Raises FormatError."""
    grid = f.integers("grid")
    f.need(len(grid) == 3, f"grid needs three counts: {len(grid)}")
    flags = f.texts("flags")
    f.need(set(flags) <= set(_FLAGS), f"flags needs some of {', '.join(_FLAGS)}")
    return Needs(
        f.choice("target", TARGETS),
        f.text("arch"),
        f.integer("subgroup", 0, 1024),
        grid,
        f.integer("threads"),
        f.integer("workgroup_nbytes"),
        f.integer("storage_buffers"),
        f.integer("binding_nbytes"),
        f.integer("buffer_nbytes"),
        f.integer("memory_nbytes"),
        f.integer("offset_align", 4, 1 << 20),
        f.integer("loop_trips"),
        flags,
    )


def lacks(needs: Needs, there: DeviceLimits) -> list[str]:
    """What the device hasn't got, each as "needs this: it has that"."""
    if needs.target != there.target:
        return [f"needs a device that takes {needs.target}: it takes {there.target}"]
    found: list[str] = []
    if not _runs_arch(needs, there):
        found.append(f"needs arch {needs.arch!r}: it has {there.arch!r}")
    if needs.target != "llvm" and needs.subgroup not in (0, there.subgroup):
        found.append(f"needs subgroups of {needs.subgroup}: it has {there.subgroup}")
    for axis, (asked, most) in enumerate(zip(needs.grid, there.grid, strict=True)):
        if asked > most:
            found.append(f"needs {asked} groups on axis {axis}: it takes {most}")
    for name in _COUNTS:
        asked, most = int(getattr(needs, name)), int(getattr(there, name))
        if asked > most:
            found.append(f"needs {name} {asked}: it has {most}")
    if needs.offset_align % there.offset_align:
        found.append(
            f"places values at multiples of {needs.offset_align}: it asks {there.offset_align}"
        )
    if there.loop_trips and not 0 < needs.loop_trips <= there.loop_trips:
        said = f"up to {needs.loop_trips}" if needs.loop_trips else "any number of"
        found.append(f"may take {said} trips through a loop: it ends one after {there.loop_trips}")
    found += [f"needs {name}: it hasn't" for name in needs.flags if not getattr(there, name)]
    return found


def _runs_arch(needs: Needs, there: DeviceLimits) -> bool:
    if needs.target == "spirv" or needs.arch == there.arch:
        return True
    if needs.target == "llvm":
        return _runs_cpu(needs.arch, there.arch)
    if needs.target == "ptx" and needs.arch.isascii():
        # PTX of sm_80 runs on all that came after; one with a letter (sm_90a) on its own alone.
        asked, has = needs.arch.removeprefix("sm_"), there.arch.removeprefix("sm_").rstrip("af")
        return asked.isdigit() and has.isdigit() and int(asked[:6]) <= int(has)
    return False


def _runs_cpu(asked: str, there: str) -> bool:
    """Code for a level of the psABI runs where its features are; code for a processor's name runs
    on processors of that name that have its features."""
    cpu, *marks = asked.split(",")
    own, *has = there.split(",")
    wanted = {m.removeprefix("+") for m in marks if m.startswith("+")}
    levels = [name for name, _ in _LEVELS]
    if cpu in levels:
        for _, features in _LEVELS[: levels.index(cpu) + 1]:
            wanted |= set(features)
    elif cpu != own:
        return False
    if own in levels:
        for _, features in _LEVELS[: levels.index(own) + 1]:
            has += [f"+{f}" for f in features]
    return all(f"+{f}" in has for f in wanted)


def check_needs(needs: Needs, there: DeviceLimits, who: str) -> None:
    """Raises CapabilityError naming all that is missing, both sides of each; MemoryBudget where
    only memory is."""
    found = lacks(needs, there)
    if found:
        raise CapabilityError(
            f"{who} can't run on {there.name}: it {'; it '.join(found)}; compile it for that "
            "device, or for a profile that both have"
        )
    if needs.memory_nbytes > there.memory_nbytes:
        raise MemoryBudget(
            f"{who} needs {needs.memory_nbytes} bytes of device memory: {there.name} has "
            f"{there.memory_nbytes}"
        )
