"""The process's threads: made at the first run, shared by every session, one launch list at a
time."""

from __future__ import annotations

import atexit
import ctypes
import functools
import hashlib
import os
import threading
from dataclasses import dataclass, field

import numpy as np

from poot.backends.cpu.machine import limits
from poot.backends.cpu.runtime import POOL, POOL_NBYTES, WORKER, WORKER_NBYTES, runtime_text
from poot.cache import DiskCache
from poot.codegen.llvm.binding import Loaded, load_objects
from poot.codegen.llvm.compile import compile_text, object_file
from poot.errors import BackendError
from poot.knobs import knobs

ALIGN = 64


def aligned(nbytes: int) -> np.ndarray:
    """Zeroed bytes that start on a cache line."""
    whole = np.zeros(nbytes + ALIGN, np.uint8)
    skip = -whole.ctypes.data % ALIGN
    return whole[skip : skip + nbytes]


def compiled(text: str, arch: str, cache: DiskCache | None) -> bytes:
    """The object file of LLVM IR, from the cache where it is there."""
    key = hashlib.sha256(f"llvm object 2\n{arch}\n{text}".encode()).hexdigest()
    stored = cache.get(key) if cache is not None else None
    found = object_file(stored) if stored is not None else None
    if found is not None:
        return found
    made = compile_text(text, arch)
    if cache is not None:
        cache.put(key, made)
    whole = object_file(made)
    assert whole is not None
    return whole


@dataclass(frozen=True, slots=True)
class Pool:
    """`threads` threads, the caller's among them, each with its workgroup memory."""

    threads: int
    loaded: Loaded
    block: np.ndarray
    workers: np.ndarray
    shared: np.ndarray
    started: tuple[ctypes.c_void_p, ...]
    lock: threading.Lock = field(default_factory=threading.Lock)

    def call(self, records: int, count: int, times: int) -> None:
        """Runs `count` launch records at an address; the GIL is let go. Callers wait in turn.

        `times` is the address of count + 1 f64, which get the microsecond at which each starts and
        all end; 0 for none."""
        words = self.block.view(np.int64)
        run = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(self.loaded.addresses["poot_call"])
        with self.lock:
            words[POOL["records"] // 8] = records
            words[POOL["count"] // 8] = count
            words[POOL["times"] // 8] = times
            run(self.workers.ctypes.data)

    def stop(self, process: int) -> None:
        """Ends the workers, which would else run code that is being unloaded; what runs later runs
        on the caller's thread alone. Does nothing in a forked child, which has none of them."""
        if os.getpid() != process:
            return
        words, libc = self.block.view(np.int64), ctypes.CDLL(None)
        mutex = ctypes.c_void_p(self.block.ctypes.data + POOL["mutex"])
        with self.lock:
            words[POOL["threads"] // 8] = 1
            words[POOL["quits"] // 8] = 1
            libc.pthread_mutex_lock(mutex)
            words[POOL["call"] // 8] += 1
            libc.pthread_cond_broadcast(ctypes.c_void_p(self.block.ctypes.data + POOL["condition"]))
            libc.pthread_mutex_unlock(mutex)
            for thread in self.started:
                libc.pthread_join(thread, None)


def pool(threads: int) -> Pool:
    """The process's pool of that many threads. A forked child makes its own."""
    with _MAKING:  # two that are made at once would leave one whose memory goes under its workers
        return _pool(threads, os.getpid())


_MAKING = threading.Lock()


@functools.cache
def _pool(threads: int, process: int) -> Pool:
    machine = limits()
    text = runtime_text()
    data = compiled(text, machine.arch, DiskCache(knobs().cache_dir))
    loaded = load_objects([data], ["poot_call", "poot_worker"])
    block, workers = aligned(POOL_NBYTES), aligned(WORKER_NBYTES * threads)
    stride = -(-machine.workgroup_nbytes // ALIGN) * ALIGN
    shared = aligned(stride * threads)
    block.view(np.int64)[POOL["threads"] // 8] = threads
    libc = ctypes.CDLL(None)
    base = block.ctypes.data
    libc.pthread_mutex_init(ctypes.c_void_p(base + POOL["mutex"]), None)
    libc.pthread_cond_init(ctypes.c_void_p(base + POOL["condition"]), None)
    for n in range(threads):
        words = workers[n * WORKER_NBYTES : (n + 1) * WORKER_NBYTES].view(np.int64)
        words[WORKER["pool"] // 8] = base
        words[WORKER["number"] // 8] = n
        words[WORKER["shared"] // 8] = shared.ctypes.data + n * stride
    entry, first = loaded.addresses["poot_worker"], workers.ctypes.data
    started = tuple(_start(libc, entry, first + n * WORKER_NBYTES) for n in range(1, threads))
    made = Pool(threads, loaded, block, workers, shared, started)
    atexit.register(made.stop, process)
    return made


def _start(libc: ctypes.CDLL, entry: int, argument: int) -> ctypes.c_void_p:
    """A thread that runs native code alone. Raises BackendError."""
    made = ctypes.c_void_p()
    failed = libc.pthread_create(
        ctypes.byref(made), None, ctypes.c_void_p(entry), ctypes.c_void_p(argument)
    )
    if failed:
        raise BackendError(f"pthread_create failed with error {failed}: {os.strerror(failed)}")
    return made
