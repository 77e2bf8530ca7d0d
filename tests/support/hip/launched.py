"""A HIP device over the stand-in, and launches on it, for the checks of the launcher."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from poot.backends.base import Buffer, Executable
from poot.backends.hip.device import HipDevice
from poot.backends.hip.driver import HipApi, device_facts
from poot.cache import DiskCache
from tests.backends import test_base

N, BYTES = test_base.N, test_base.BYTES


def fresh(folder: str | None = None) -> HipDevice:
    """A device with a cache of its own, or none."""
    cache = DiskCache(Path(folder)) if folder else None
    facts = device_facts()[0]  # which starts the runtime
    return HipDevice(HipApi(0), facts, cache)


def prepared(device: HipDevice, launches: int = 2) -> tuple[Buffer, Executable]:
    """An arena of x = 1 and y = 0, and launches of y += 3 x."""
    arena = device.allocate(2 * BYTES, "arena")
    device.copy_in(arena, 0, np.ones(N, np.float32))
    loaded = device.load([test_base.axpy(device)])
    rows = [test_base.launch(3.0, *test_base.refs())] * launches
    return arena, device.prepare(loaded, rows, {"arena": arena})
