"""A device whose launches run a kernel's HIP text on the CPU, a fiber a lane, in waves of 32 or 64.

Each buffer that a launch binds lies between pages nobody may touch, so that an access outside of it
is an error here, as are lanes that part at a barrier or an exchange, and results that hang on which
lane of a group runs first.
"""

from __future__ import annotations

import ctypes
import functools
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from poot.backends.base import Buffer, BufferRef, Code, Launch
from poot.backends.launches import check_launch, padded
from poot.codegen.emitters import emit
from poot.codegen.kir.nodes import ELEMENT_BYTES, Kernel
from poot.errors import BackendError, BindingLimit, LaunchError, OutOfDeviceMemory
from poot.limits import DeviceLimits, profile
from tests.support.hip import gxx

WAVES = {32: "rdna3", 64: "mi300x"}
_GIB = 1 << 30
# The runner's orders (runner.cpp, poot_run) that a launch is run in, by a device's own.
ORDERS = {0: (0,), 1: (1,), 2: (2, 3)}
WRONG = {
    1: "divergent barrier",
    2: "divergent wave",
    3: "a lane outside the wave",
    4: "unequal copies of a matrix row",
    5: "out of bounds",
}


class Report(ctypes.Structure):
    """What the runner says of a launch."""

    _fields_ = (
        ("what", ctypes.c_int),
        ("group", ctypes.c_uint * 3),
        ("lane", ctypes.c_uint),
        ("other", ctypes.c_uint),
        ("line", ctypes.c_int),
        ("other_line", ctypes.c_int),
        ("address", ctypes.c_uint64),
    )


@functools.cache
def _runner() -> ctypes.CDLL:
    made = ctypes.CDLL(str(gxx.runner()), mode=ctypes.RTLD_GLOBAL)
    made.poot_guarded.restype = ctypes.c_void_p
    made.poot_guarded.argtypes = [ctypes.c_size_t]
    made.poot_unguard.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    made.poot_touched.restype = ctypes.c_size_t
    made.poot_touched.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    return made


# The runner's state is the process's own: one launch at a time.
_ONE = threading.Lock()


@dataclass(frozen=True, slots=True)
class Ready:
    """A kernel in a library: its function, its workgroup memory, whether its lanes meet."""

    code: Code
    call: int
    shared: tuple[int, int]
    meets: bool


@functools.cache
def _made() -> dict[bytes, Ready]:
    """Kernels compiled in this process, by their text."""
    return {}


def ready(codes: Sequence[Code]) -> list[Ready]:
    """The kernels as functions; what isn't compiled yet is compiled as one library."""
    made, fresh = _made(), dict[bytes, Code]()
    for code in codes:
        if code.binary not in made:
            fresh.setdefault(code.binary, code)
    if fresh:
        _runner()
        library = ctypes.CDLL(str(gxx.kernels(list(fresh.values()))))
        for n, code in enumerate(fresh.values()):
            made[code.binary] = _found(library, n, code)
    return [replace(made[code.binary], code=code) for code in codes]  # sizes aren't in the text


def _found(library: ctypes.CDLL, n: int, code: Code) -> Ready:
    call = ctypes.cast(getattr(library, f"poot_call_{n}"), ctypes.c_void_p).value
    assert call is not None
    if not code.kernel.shared:
        return Ready(code, call, (0, 0), gxx.meets(code))
    start, stop = ctypes.c_void_p(), ctypes.c_void_p()
    getattr(library, f"poot_where_{n}")(ctypes.byref(start), ctypes.byref(stop))
    at, nbytes = start.value or 0, code.kernel.shared_nbytes
    assert (stop.value or 0) - at >= nbytes + gxx.RED_NBYTES, "the block and its red zone"
    return Ready(code, call, (at, at + nbytes), gxx.meets(code))


@dataclass(slots=True)
class FiberBuffer:
    """Bytes of the host, whole quanta; `asked` is what was asked."""

    data: np.ndarray
    asked: int
    label: str
    is_freed: bool = False

    @property
    def nbytes(self) -> int:
        return self.asked


@dataclass(frozen=True, slots=True)
class Region:
    """Bytes [start, stop) of a space, copied between guard pages for a launch."""

    space: str
    start: int
    stop: int
    writes: bool


def _regions(launch: Launch, kernel: Kernel) -> list[Region]:
    """What a launch may touch: each parameter's elements, ranges that overlap as one."""
    rows: list[Region] = []
    for p, ref in zip(kernel.params, launch.buffers, strict=True):
        nbytes = -(-p.elems * ELEMENT_BYTES[p.dtype] // 4) * 4
        rows.append(Region(ref.space, ref.offset, ref.offset + nbytes, p.access != "r"))
    out: list[Region] = []
    for row in sorted(rows, key=lambda r: (r.space, r.start)):
        last = out[-1] if out else None
        if last is not None and last.space == row.space and row.start < last.stop:
            stop, writes = max(last.stop, row.stop), last.writes or row.writes
            out[-1] = replace(last, stop=stop, writes=writes)
        else:
            out.append(row)
    return out


class FiberExecutable:
    """A launch list over buffers, run in order."""

    def __init__(
        self,
        kernels: Sequence[Ready],
        launches: Sequence[Launch],
        buffers: dict[str, FiberBuffer],
        device: FiberDevice,
    ) -> None:
        self._kernels = kernels
        self._launches = launches
        self._buffers = buffers
        self._device = device

    def run(self) -> None:
        self.timed()

    def timed(self) -> list[float]:
        for launch in self._launches:
            for ref in launch.buffers:
                if self._buffers[ref.space].is_freed:
                    names = ", ".join(self._kernels[x.kernel].code.name for x in self._launches[:3])
                    label = self._buffers[ref.space].label
                    raise LaunchError(f"buffer {label} of launches of {names} has been freed")
        times: list[float] = []
        with _ONE:
            for launch in self._launches:
                start = time.perf_counter()
                self._one(launch)
                times.append((time.perf_counter() - start) * 1e6)
        return times

    def record(self) -> bool:
        return False

    @property
    def is_replay(self) -> bool:
        return False

    def _one(self, launch: Launch) -> None:
        made = self._kernels[launch.kernel]
        regions = _regions(launch, made.code.kernel)
        runner, places = _runner(), list[int]()
        try:
            for r in regions:
                places.append(self._guarded(r))
            left: list[np.ndarray] = []
            for order in ORDERS[self._device.order]:
                self._fill(regions, places)
                report = self._call(made, launch, order, regions, places)
                if report.what:
                    raise LaunchError(explain(report, made.code, regions, places))
                now = [self._left(r, at, made.code) for r, at in zip(regions, places, strict=True)]
                for r, mine, other in zip(regions, now, left or now, strict=True):
                    _same(r, mine, other, made.code)
                left = now
            for r, bytes_ in zip(regions, left, strict=True):
                if r.writes:
                    self._buffers[r.space].data[r.start : r.stop] = bytes_
        finally:
            for r, at in zip(regions, places, strict=False):
                runner.poot_unguard(at, padded(r.stop - r.start))

    def _guarded(self, r: Region) -> int:
        nbytes = padded(r.stop - r.start)
        at = _runner().poot_guarded(nbytes)
        if not at:
            raise OutOfDeviceMemory(f"{r.space}: no {nbytes} bytes between guard pages")
        ctypes.memset(at, 0xFF, nbytes)
        return at

    def _fill(self, regions: list[Region], places: list[int]) -> None:
        for r, at in zip(regions, places, strict=True):
            data = self._buffers[r.space].data[r.start : r.stop]
            ctypes.memmove(at, data.ctypes.data, data.size)

    def _left(self, r: Region, at: int, code: Code) -> np.ndarray:
        """A copy of the region's bytes after a launch that kept to it."""
        nbytes = r.stop - r.start
        raw = np.ctypeslib.as_array((ctypes.c_uint8 * padded(nbytes)).from_address(at))
        touched = _runner().poot_touched(at, padded(nbytes)) + int((raw[nbytes:] != 0xFF).sum())
        data = self._buffers[r.space].data[r.start : r.stop]
        if touched or (not r.writes and not np.array_equal(raw[:nbytes], data)):
            what = f"{touched} bytes beside" if touched else "what it only reads of"
            raise LaunchError(
                f"kernel {code.name}: out of bounds: it wrote {what} {r.space} "
                f"[{r.start}, {r.stop})"
            )
        return raw[:nbytes].copy()

    def _call(
        self,
        made: Ready,
        launch: Launch,
        order: int,
        regions: list[Region],
        places: list[int],
    ) -> Report:
        kernel = made.code.kernel
        values: list[ctypes.c_void_p | ctypes.c_int32 | ctypes.c_uint32 | ctypes.c_float] = []
        for ref in launch.buffers:
            values.append(ctypes.c_void_p(_address(ref, regions, places)))
        kinds = {"i32": ctypes.c_int32, "u32": ctypes.c_uint32, "f32": ctypes.c_float}
        values += [kinds[i.dtype](v) for i, v in zip(kernel.imms, launch.imms, strict=True)]
        args = (ctypes.c_void_p * max(1, len(values)))(*(ctypes.addressof(v) for v in values))
        report = Report()
        start, stop = made.shared
        if stop:
            ctypes.memset(stop, 0xFF, gxx.RED_NBYTES)
        _runner().poot_run(
            ctypes.c_void_p(made.call), args, (ctypes.c_uint * 3)(*launch.grid), kernel.threads,
            self._device.limits.subgroup, int(made.meets), order,
            ctypes.c_void_p(start), ctypes.c_void_p(stop), ctypes.byref(report),
        )  # fmt: skip
        red = (ctypes.c_uint8 * gxx.RED_NBYTES).from_address(stop) if stop else b""
        if (touched := sum(byte != 0xFF for byte in red)) and not report.what:
            raise LaunchError(
                f"kernel {made.code.name}: out of bounds: it wrote {touched} bytes behind its "
                f"workgroup memory of {stop - start} bytes"
            )
        return report


def _same(r: Region, mine: np.ndarray, other: np.ndarray, code: Code) -> None:
    (differ,) = np.nonzero(mine != other)
    if differ.size:
        raise LaunchError(
            f"kernel {code.name}: what it leaves hangs on which lane or group runs first: "
            f"{differ.size} bytes of {r.space} [{r.start}, {r.stop}), the first at {differ[0]:+d}"
        )


def _address(ref: BufferRef, regions: list[Region], places: list[int]) -> int:
    for r, at in zip(regions, places, strict=True):
        if r.space == ref.space and r.start <= ref.offset < max(r.stop, r.start + 1):
            return at + ref.offset - r.start
    raise AssertionError(ref)


def explain(report: Report, code: Code, regions: list[Region], places: list[int]) -> str:
    """The runner's report in words, with the lines of the text."""
    group = tuple(report.group)
    what = f"kernel {code.name}: {WRONG[report.what]} in group {group}"
    lines = code.text.splitlines()

    def where(lane: int, line: int) -> str:
        if not 0 < line <= len(lines):
            return f"lane {lane} has ended"
        return f"lane {lane} is at line {line}, `{lines[line - 1].strip()}`"

    if report.what in (1, 2):
        first, second = (report.lane, report.line), (report.other, report.other_line)
        return f"{what}: {where(*first)}; {where(*second)}"
    if report.what != 5:
        return f"{what}: {where(report.lane, report.line)}"
    near = [
        f"{report.address - at:+d} of {r.space} [{r.start}, {r.stop})"
        for r, at in zip(regions, places, strict=True)
        if abs(report.address - at) < (r.stop - r.start) + (256 << 20)
    ]
    return f"{what}: lane {report.lane} touches byte {', '.join(near) or hex(report.address)}"


def fiber_limits(wave: int) -> DeviceLimits:
    """The limits of the card that has such waves, with the memory of a test machine."""
    return replace(
        profile(WAVES[wave]),
        name=f"hip-fibers-{wave}",
        grid=(65535, 65535, 65535),
        buffer_nbytes=2 * _GIB,
        binding_nbytes=_GIB // 4,
        memory_nbytes=8 * _GIB,
        is_software=True,
    )


class FiberDevice:
    """`backends.base.Device` over the fiber runner. `order` 0 runs a group's lanes forward, 1
    backward; 2 runs a launch twice, groups and the lanes of each in both orders, and wants the same
    bytes left."""

    def __init__(self, wave: int, order: int = 2, limits: DeviceLimits | None = None) -> None:
        gxx.require_gxx()
        self.order = order
        self._limits = limits or fiber_limits(wave)

    @property
    def limits(self) -> DeviceLimits:
        return self._limits

    @property
    def description(self) -> str:
        return f"HIP text on the CPU by fibers, waves of {self._limits.subgroup}"

    def allocate(self, nbytes: int, label: str) -> FiberBuffer:
        limits = self._limits
        if nbytes > limits.memory_nbytes:
            raise OutOfDeviceMemory(
                f"{label} asks {nbytes} bytes: {limits.name} has {limits.memory_nbytes}"
            )
        if nbytes > limits.buffer_nbytes:
            raise BindingLimit(
                f"{label} asks {nbytes} bytes in one buffer: {limits.name} allows "
                f"{limits.buffer_nbytes}"
            )
        return FiberBuffer(np.zeros(padded(nbytes), np.uint8), nbytes, label)

    def free(self, buffer: Buffer) -> None:
        if isinstance(buffer, FiberBuffer):
            buffer.is_freed = True
            buffer.data = np.zeros(0, np.uint8)

    def _own(self, buffer: Buffer, offset: int = 0, nbytes: int = 0) -> FiberBuffer:
        if not isinstance(buffer, FiberBuffer) or buffer.is_freed:
            raise BackendError(f"needs a live buffer of {self._limits.name}: {buffer}")
        if offset % 4 or nbytes % 4 or offset < 0 or offset + nbytes > padded(buffer.nbytes):
            raise BackendError(
                f"a copy needs whole words inside {buffer.label} of {buffer.nbytes} bytes: "
                f"[{offset}, {offset + nbytes})"
            )
        return buffer

    def copy_in(self, buffer: Buffer, offset: int, data: np.ndarray) -> None:
        raw = np.ascontiguousarray(data).reshape(-1).view(np.uint8)
        self._own(buffer, offset, raw.size).data[offset : offset + raw.size] = raw

    def copy_out(self, buffer: Buffer, offset: int, nbytes: int) -> np.ndarray:
        return self._own(buffer, offset, nbytes).data[offset : offset + nbytes].copy()

    def copy(
        self, source: Buffer, source_offset: int, target: Buffer, target_offset: int, nbytes: int
    ) -> None:
        self.copy_in(target, target_offset, self.copy_out(source, source_offset, nbytes))

    def emit(self, kernel: Kernel) -> Code:
        return emit(kernel, self._limits)

    def load(self, codes: Sequence[Code]) -> list[Ready]:
        for code in codes:
            if code.target != "hip":
                raise LaunchError(
                    f"kernel {code.name} is for {code.target}: {self._limits.name} takes hip"
                )
        with _ONE:
            try:
                return ready(codes)
            except AssertionError as e:
                names = ", ".join(c.name for c in codes[:3])
                raise LaunchError(f"kernel {names}: g++ refuses the text: {e}") from e

    def prepare(
        self, loaded: object, launches: Sequence[Launch], buffers: dict[str, Buffer]
    ) -> FiberExecutable:
        assert isinstance(loaded, list), "what this device's load returned"
        own = {name: self._own(buffer) for name, buffer in buffers.items()}
        sizes = {name: buffer.nbytes for name, buffer in own.items()}
        for launch in launches:
            check_launch(launch, loaded[launch.kernel].code.kernel, sizes, self._limits)
        return FiberExecutable(loaded, tuple(launches), own, self)

    def need_open(self) -> None:
        return None

    def close(self) -> None:
        return None
