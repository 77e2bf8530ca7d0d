"""Which way back a driver leaves a process whose context was lost: each in a process of its own.

    PYTHONPATH=src:. python benchmarks/lost_context.py --out results.json

A kernel that writes outside of every allocation loses the context; then a context is asked for
again, after what the way's name says. Needs cuda-bindings and a card.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from cuda.bindings import driver as cu

from benchmarks.record import save

PTX = b""".version 8.0
.target sm_80
.address_size 64
.visible .entry astray()
{
    .reg .b64 $at;
    mov.u64 $at, 4096;
    st.global.u32 [$at], 1;
    ret;
}
\0"""
Ways = dict[str, tuple[bool, Callable[[object, object], list[object]], bool]]


def lose() -> None:
    """Loses the current context."""
    module = cu.cuModuleLoadData(PTX)[1]
    function = cu.cuModuleGetFunction(module, b"astray")[1]
    cu.cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0)
    print("lost:", cu.cuCtxSynchronize()[0].name)


# Whether the first context is the primary one; what is called between; whether the next one is.
WAYS: Ways = {
    "reset": (True, lambda d, c: [cu.cuDevicePrimaryCtxReset(d)[0]], True),
    "release": (True, lambda d, c: [cu.cuDevicePrimaryCtxRelease(d)[0]], True),
    "release, reset": (
        True,
        lambda d, c: [cu.cuDevicePrimaryCtxRelease(d)[0], cu.cuDevicePrimaryCtxReset(d)[0]],
        True,
    ),
    "reset, then one of its own": (True, lambda d, c: [cu.cuDevicePrimaryCtxReset(d)[0]], False),
    "one of its own at once": (True, lambda d, c: [], False),
    "destroyed, one of its own": (False, lambda d, c: [cu.cuCtxDestroy(c)[0]], False),
    "destroyed, the primary one": (False, lambda d, c: [cu.cuCtxDestroy(c)[0]], True),
}


def made(device: object, is_primary: bool) -> tuple[object, object]:
    if is_primary:
        code, context = cu.cuDevicePrimaryCtxRetain(device)
    elif "ctxCreateParams" in (cu.cuCtxCreate.__doc__ or ""):
        code, context = cu.cuCtxCreate(None, 0, device)
    else:
        code, context = cu.cuCtxCreate(0, device)
    if is_primary and int(code) == 0:
        cu.cuCtxPushCurrent(context)
    return code, context


def one(way: str) -> None:
    first, between, second = WAYS[way]
    cu.cuInit(0)
    device = cu.cuDeviceGet(0)[1]
    code, context = made(device, first)
    print("first:", code.name)
    lose()
    cu.cuCtxPopCurrent()
    print("between:", *(c.name for c in between(device, context)))
    code, _ = made(device, second)
    print("second:", code.name)
    code, pointer = cu.cuMemAlloc(4096)
    print("memory:", code.name)
    if int(code) == 0:
        print("zeroed:", cu.cuMemsetD8(pointer, 0, 4096)[0].name)
        print("waited:", cu.cuCtxSynchronize()[0].name)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--way", default="")
    parser.add_argument("--out", type=Path, default=None)
    options = parser.parse_args(argv)
    if options.way:
        one(options.way)
        return 0
    said: dict[str, list[str]] = {}
    for way in WAYS:
        command = [sys.executable, "-m", "benchmarks.lost_context", "--way", way]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
        said[way] = (done.stdout + done.stderr[-400:]).splitlines()
        print(f"{way:<28} {'; '.join(said[way])}", flush=True)
    if options.out is not None:
        save(options.out, said)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
