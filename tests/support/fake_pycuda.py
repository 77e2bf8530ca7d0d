"""`pycuda.driver` without a driver, as far as poot asks it: memory in numpy, launches noted."""

from __future__ import annotations

import numpy as np


class Error(Exception):
    pass


class Stream:
    handle = 33

    def __init__(self, flags: int = 0) -> None:
        self.flags = flags

    def synchronize(self) -> None:
        FakePycuda.calls.append("synchronize")
        FakePycuda.fail("synchronize")


class Event:
    def record(self, stream: Stream) -> None:
        FakePycuda.calls.append("record")

    def time_since(self, other: Event) -> float:
        return 0.5


class Context:
    @staticmethod
    def pop() -> None:
        FakePycuda.calls.append("pop")

    @staticmethod
    def synchronize() -> None:
        FakePycuda.calls.append("synchronize all")

    def push(self) -> None:
        FakePycuda.calls.append("push")

    def detach(self) -> None:
        FakePycuda.calls.append("detach")


class Device:
    def __init__(self, index: int) -> None:
        self.index = index

    @staticmethod
    def count() -> int:
        return 1

    def name(self) -> str:
        return "a card"

    def total_memory(self) -> int:
        return 1 << 30

    def get_attribute(self, which: str) -> int:
        known = {
            "COMPUTE_CAPABILITY_MAJOR": 8, "COMPUTE_CAPABILITY_MINOR": 0,
            "MAX_THREADS_PER_MULTIPROCESSOR": 2048, "MAX_REGISTERS_PER_MULTIPROCESSOR": 65536,
            "MAX_SHARED_MEMORY_PER_MULTIPROCESSOR": 164 << 10,
            "RESERVED_SHARED_MEMORY_PER_BLOCK": 1024, "MAX_BLOCKS_PER_MULTIPROCESSOR": 32,
        }  # fmt: skip
        return known.get(which, 1)

    def retain_primary_context(self) -> Context:
        FakePycuda.calls.append("retain")
        return Context()


class Allocation(int):
    def free(self) -> None:
        FakePycuda.calls.append("free")


class Function:
    def set_attribute(self, which: str, value: int) -> None:
        FakePycuda.calls.append(f"{which} {value}")

    def get_attribute(self, which: str) -> int:
        return {"NUM_REGS": 40, "SHARED_SIZE_BYTES": 8}.get(which, 0)

    def _launch_kernel(self, *given: object) -> None:
        FakePycuda.launched.append(given)
        FakePycuda.fail("launch")


class Module:
    def __del__(self) -> None:
        FakePycuda.calls.append("unload")

    def get_function(self, name: str) -> Function:
        return Function()


class Names:
    def __getattr__(self, name: str) -> str:
        return name


class FakePycuda:
    """The module. `fails` maps what is asked to the driver's words."""

    Error, Stream, Event, Context, Device = Error, Stream, Event, Context, Device
    device_attribute = function_attribute = Names()
    calls: list[str] = []  # noqa: RUF012 - emptied by each test's fixture
    launched: list[tuple[object, ...]] = []  # noqa: RUF012 - as above
    fails: dict[str, str] = {}  # noqa: RUF012 - as above

    @classmethod
    def fail(cls, what: str) -> None:
        if what in cls.fails:
            raise Error(f"cuSomething failed: {cls.fails[what]}")

    def init(self) -> None:
        self.fail("init")

    def get_driver_version(self) -> int:
        return 12040

    def mem_get_info(self) -> tuple[int, int]:
        return 10, 20

    def mem_alloc(self, nbytes: int) -> Allocation:
        self.fail("mem_alloc")
        return Allocation(4096)

    def pagelocked_empty(self, nbytes: int, dtype: type) -> np.ndarray:
        return np.empty(nbytes, dtype)

    def memset_d8_async(self, *given: object) -> None:
        self.calls.append("memset")

    def memcpy_htod_async(self, *given: object) -> None:
        self.calls.append("copy in")

    def memcpy_dtoh_async(self, *given: object) -> None:
        self.calls.append("copy out")

    def memcpy_dtod_async(self, *given: object) -> None:
        self.calls.append("copy")

    def module_from_buffer(self, image: bytes, options: list[object], heard: object) -> Module:
        if "module" in self.fails:
            heard(False, "", "line 3: no such instruction")  # pyright: ignore[reportCallIssue] - a handler
        self.fail("module")
        return Module()
