"""AMD GPUs through ROCm's HIP runtime, by hip-python; kernels are compiled by hiprtc as they are
loaded."""

from __future__ import annotations

from dataclasses import replace

from poot.backends.hip.device import HipDevice
from poot.backends.hip.driver import connect, device_facts
from poot.backends.launches import refuse_more
from poot.cache import DiskCache
from poot.errors import BackendUnavailable
from poot.knobs import knobs
from poot.limits import DeviceLimits


def found() -> list[tuple[str, DeviceLimits]]:
    """Each device's description and limits. Raises BackendUnavailable with what to install."""
    return [(row.description, row.limits) for row in device_facts()]


def open_device(index: int = 0, *, limits: DeviceLimits | None = None) -> HipDevice:
    """The runtime's device of that index, on a stream of its own; with `limits`, of HIP and no more
    than the device's, kernels are made for exactly those. Raises BackendUnavailable."""
    rows = device_facts()
    if not 0 <= index < len(rows):
        raise BackendUnavailable(f"there is no hip:{index}: HIP finds {len(rows)} devices")
    facts = rows[index]
    if limits is not None:
        if limits.target != "hip":
            raise BackendUnavailable(f"hip takes no limits of {limits.target}: {limits.name}")
        refuse_more(limits, facts.limits)
        facts = replace(facts, limits=limits)
    return HipDevice(connect(index), facts, DiskCache(knobs().cache_dir / "hip"))
