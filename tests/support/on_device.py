"""Runs a step's kernels on a real device, as tests/support/launch.py does through the simulator."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from poot.backends.base import BufferRef, Device, Launch
from poot.codegen.emitters import emit
from poot.codegen.gen.lower import lower
from poot.limits import DeviceLimits
from poot.planner.request import Request
from tests.support.launch import device_buffers, outputs_of


def run_on(
    device: Device,
    request: Request,
    ins: Sequence[np.ndarray],
    *,
    limits: DeviceLimits | None = None,
    times: list[float] | None = None,
) -> list[np.ndarray]:
    """The step's outputs, each buffer an allocation of its own. `limits` may be tighter than the
    device's. `times` gets each launch's time in us."""
    lowered = lower(request, limits or device.limits)
    arrays = device_buffers(request, ins)
    updates = {("out", out): ("in", at) for out, at in request.updates}
    names = {key: f"states.{key[0]}{key[1]}" for key in arrays if key not in updates}
    buffers = {name: device.allocate(max(arrays[k].size, 4), name) for k, name in names.items()}
    try:
        for key, name in names.items():
            if arrays[key].size:
                device.copy_in(buffers[name], 0, arrays[key])
        launches: list[Launch] = []
        for n, call in enumerate(lowered.calls):
            keys = [updates.get(arg, arg) for arg in call.args]
            refs = tuple(BufferRef(names[key], 0, max(arrays[key].size, 4)) for key in keys)
            maps = tuple((refs[call.args.index(arg)], view) for arg, view in call.maps)
            launches.append(Launch(n, call.grid, refs, call.imms, call.attributes, maps))
        loaded = device.load([emit(c.kernel, device.limits) for c in lowered.calls])
        ready = device.prepare(loaded, launches, buffers)
        ready.run()
        if times is not None:
            times.extend(min(t) for t in zip(*(ready.timed() for _ in range(12)), strict=True))
        for n in range(len(request.body.outputs)):
            key = updates.get(("out", n), ("out", n))
            arrays["out", n] = device.copy_out(buffers[names[key]], 0, arrays[key].size)
        return outputs_of(request, arrays)
    finally:
        for buffer in buffers.values():
            device.free(buffer)
