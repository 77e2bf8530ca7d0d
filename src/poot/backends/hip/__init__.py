"""AMD GPUs through ROCm's HIP runtime, by hip-python; kernels are compiled by hiprtc as they are
loaded."""

from __future__ import annotations

from poot.backends.hip.device import HipDevice
from poot.backends.hip.driver import connect, device_facts
from poot.cache import DiskCache
from poot.errors import BackendUnavailable
from poot.knobs import knobs
from poot.limits import DeviceLimits


def found() -> list[tuple[str, DeviceLimits]]:
    """Each device's description and limits. Raises BackendUnavailable with what to install."""
    return [(row.description, row.limits) for row in device_facts()]


def open_device(index: int = 0) -> HipDevice:
    """The runtime's device of that index, on a stream of its own. Raises BackendUnavailable."""
    rows = device_facts()
    if not 0 <= index < len(rows):
        raise BackendUnavailable(f"hip has {len(rows)} devices: there is no hip:{index}")
    return HipDevice(connect(index), rows[index], DiskCache(knobs().cache_dir / "hip"))
