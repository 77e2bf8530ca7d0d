"""Which devices there are, by name, and how each is opened.

A backend is a package of `poot.backends` with `found()` and `open_device(index)`. It is imported
when it is first asked for, since its library may be missing or slow to load.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import Protocol, cast

from poot.backends.base import Device
from poot.errors import BackendError, BackendUnavailable
from poot.limits import DeviceLimits, profile


class Backend(Protocol):
    """What a backend's package answers. Both raise BackendUnavailable with what to install."""

    def found(self) -> list[tuple[str, DeviceLimits]]:
        """Description and limits of each device, in the order of their indices."""
        ...

    def open_device(self, index: int, *, limits: DeviceLimits | None) -> Device: ...


@dataclass(frozen=True, slots=True)
class Found:
    """A device by the name that targets use, or a backend without one and the reason."""

    name: str
    description: str
    limits: DeviceLimits | None
    reason: str | None


# Backend -> its package. "auto" tries them in AUTO_ORDER, software GPUs after all others.
BACKENDS: dict[str, str] = {
    "cuda": "poot.backends.cuda",
    "hip": "poot.backends.hip",
    "cpu": "poot.backends.cpu",
    "vulkan": "poot.backends.vulkan",
    "wgpu": "poot.backends.wgpu",
}
AUTO_ORDER = ("cuda", "hip", "vulkan", "wgpu", "cpu")
ORACLE = "oracle"


def _backend(name: str) -> Backend:
    try:
        module = importlib.import_module(BACKENDS[name])
    except ImportError as e:
        raise BackendUnavailable(f"{name} can't be loaded: {e}") from e
    return cast("Backend", module)  # BACKENDS names packages that have both functions


def devices() -> list[Found]:
    """Every device found and, for each backend without one, the reason; the oracle is last."""
    out: list[Found] = []
    for name in BACKENDS:
        try:
            rows = _backend(name).found()
        except BackendError as e:
            out.append(Found(name, "", None, e.message))
            continue
        out += [Found(f"{name}:{at}", text, limits, None) for at, (text, limits) in enumerate(rows)]
    out.append(Found(ORACLE, "numpy, the definition of right", profile(ORACLE), None))
    return out


def auto_target() -> str:
    """The best device's name: cuda, hip, vulkan, wgpu, cpu, then software GPUs, then the oracle."""
    there = [row for row in devices() if row.limits is not None]

    def place(row: Found) -> tuple[bool, int]:
        backend = row.name.partition(":")[0]
        is_software = row.limits is not None and row.limits.is_software
        order = AUTO_ORDER.index(backend) if backend in AUTO_ORDER else len(AUTO_ORDER)
        return (backend == ORACLE or (is_software and backend != "cpu"), order)

    return min(there, key=place).name


def open_device(target: str) -> Device:
    """The device of a name: "vulkan", "vulkan:1", "auto", or with a limits profile that it is to
    have exactly, "wgpu:0/webgpu-baseline".

    Raises BackendUnavailable for a name that isn't there, listing what is; the oracle is a target
    without a device."""
    device, slash, limits = target.partition("/")
    name, colon, index = (auto_target() if device == "auto" else device).partition(":")
    well_formed = not colon or (index.isascii() and index.isdigit())
    if name == ORACLE:
        raise BackendUnavailable("the oracle runs in numpy and has no device to open")
    if name not in BACKENDS or not well_formed:
        raise BackendUnavailable(f"there is no device {target!r}; there are: {_listing()}")
    return _backend(name).open_device(int(index or 0), limits=profile(limits) if slash else None)


def _listing() -> str:
    rows = devices()
    there = [f"{r.name} ({r.description})" for r in rows if r.reason is None]
    missing = [f"{r.name}: {r.reason}" for r in rows if r.reason is not None]
    return "; ".join(there + missing)
