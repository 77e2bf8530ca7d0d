"""CUDA through the driver, by cuda-bindings or pycuda."""

from __future__ import annotations

from poot.backends.cuda.cuda_bindings import BindingsProvider
from poot.backends.cuda.device import CudaDevice
from poot.backends.cuda.provider import Facts, Provider
from poot.backends.cuda.pycuda_provider import PycudaProvider
from poot.errors import BackendUnavailable
from poot.knobs import knobs
from poot.limits import DeviceLimits

# In the order that they are tried.
PROVIDERS: tuple[Provider, ...] = (BindingsProvider(), PycudaProvider())


def _chosen(name: str | None) -> tuple[Provider, list[Facts]]:
    """The provider of that name, or the first that finds a driver, with its devices."""
    rows = [p for p in PROVIDERS if name in (None, p.name)]
    if not rows:
        known = ", ".join(p.name for p in PROVIDERS)
        raise BackendUnavailable(f"cuda has no provider {name!r}; providers: {known}")
    reasons: list[str] = []
    for provider in rows:
        try:
            facts = provider.facts()
        except BackendUnavailable as e:
            reasons.append(e.message)
            continue
        if facts:
            return provider, facts
        reasons.append(f"{provider.name} finds no device")
    raise BackendUnavailable("; ".join(reasons))


def found() -> list[tuple[str, DeviceLimits]]:
    """Each device's description and limits. Raises BackendUnavailable with what to install."""
    rows = _chosen(knobs().cuda_provider or None)[1]
    return [(row.description, row.limits) for row in rows]


def open_device(
    index: int = 0,
    *,
    limits: DeviceLimits | None = None,
    provider: str | None = None,
    stream: object | None = None,
) -> CudaDevice:
    """The driver's device of that index, on a stream of its own in the primary context.

    `provider` is "cuda-bindings" or "pycuda". With `stream` everything runs on the caller's stream
    in the caller's context: a pycuda or torch stream, a handle, or what has `__cuda_stream__`.
    Raises BackendUnavailable."""
    if limits is not None:
        raise BackendUnavailable(f"cuda has its driver's limits alone: asked for {limits.name}")
    library, facts = _chosen(provider or knobs().cuda_provider or None)
    if not 0 <= index < len(facts):
        raise BackendUnavailable(f"cuda has {len(facts)} devices: there is no cuda:{index}")
    row = facts[index]
    if int(row.limits.arch.removeprefix("sm_").rstrip("a")) < 80:
        raise BackendUnavailable(
            f"{row.description} is {row.limits.arch}: poot needs sm_80 or newer"
        )
    return CudaDevice(library.open(index, stream), row, knobs().check, index)
