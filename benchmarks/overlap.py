"""What overlapping launches are worth in a whole decode: device time of a step by replay, with all
launches overlapping, with none, with some kinds, and by direct launches.

    python -m benchmarks.overlap [--model llama-8b] [--layers 8]
"""

from __future__ import annotations

import argparse
import gc
import statistics
import time
from collections.abc import Callable
from dataclasses import replace

import numpy as np

import poot
from benchmarks.llama_shapes import SHAPES, decode_graph, random_weights
from benchmarks.model_decode import CAPACITY, replay_us
from poot.codegen.gen.lowered import Lowered
from poot.planner import stream
from poot.session import Session

Keeps = Callable[[str], bool]


def with_overlap(program: poot.Program, keeps: Keeps) -> None:
    """The program's launches overlap where `keeps` says so of their kernel's name."""
    for request, low in list(program.lowered.items()):
        calls = tuple(
            replace(c, attributes=replace(c.attributes,
                                          overlap=c.attributes.overlap and keeps(c.kernel.name)))
            for c in low.calls
        )  # fmt: skip
        program.lowered[request] = Lowered(calls)  # type: ignore[index]


def captured(session: Session) -> None:
    """Replay by a graph captured from the stream, not built of nodes."""
    from cuda.bindings import driver as cu  # noqa: PLC0415

    device = session.program.device
    native = device.driver  # type: ignore[union-attr]

    def record(bound: object) -> object:
        with native._current():
            mode = cu.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_GLOBAL
            native._do(cu.cuStreamBeginCapture(native._stream, mode), "capture")
            for call, pointers, config in bound.rows():  # type: ignore[attr-defined]
                native._launch(call, pointers, config)
            graph = native._do(cu.cuStreamEndCapture(native._stream), "capture")[0]
            return native._do(cu.cuGraphInstantiate(graph, 0), "instantiate")[0]

    native.record = record


def direct_us(session: Session, count: int = 20) -> float:
    device = session.program.device
    slots = {"tokens": np.array([5], np.int32), "pos": np.int32(100)}
    session.step("decode", **slots)
    device.synchronize()  # type: ignore[union-attr]
    start = time.perf_counter()
    for _ in range(count):
        session.runner.run("decode")
    device.synchronize()  # type: ignore[union-attr]
    return 1e6 * (time.perf_counter() - start) / count


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="llama-8b", choices=SHAPES)
    parser.add_argument("--layers", type=int, default=8)
    given = parser.parse_args()
    shape = SHAPES[given.model]
    graph = decode_graph(shape, CAPACITY, given.layers, greedy=True)
    weights = random_weights(graph, shape, CAPACITY)
    nbytes = sum(w.nbytes for n, w in weights.items() if n != "w.outer.embed")
    print(f"{given.layers} layers, {nbytes / 1e9:.2f} GB: {nbytes / 4.4e6:.0f} us at 4.4 TB/s")
    rows: list[tuple[str, dict[str, int], Keeps, bool]] = [
        ("all overlap", {}, lambda n: True, False),
        ("all, captured", {}, lambda n: True, True),
        ("none", {}, lambda n: False, False),
        ("streams alone", {}, lambda n: n == "stream", False),
        ("all but attention", {}, lambda n: "attention" not in n, False),
        ("all, near 0", {"NEAR": 0}, lambda n: True, False),
        ("all, 8 warps x 16", {"WARPS": 8, "DEPTH": 16}, lambda n: True, False),
        ("none, 8 warps x 16", {"WARPS": 8, "DEPTH": 16}, lambda n: False, False),
        ("all, 8 x 16, near 0", {"WARPS": 8, "DEPTH": 16, "NEAR": 0}, lambda n: True, False),
        ("all, 16 x 16 r1", {"WARPS": 16, "DEPTH": 16, "RESIDENTS": 1}, lambda n: True, False),
        ("none, 16 x 16 r1", {"WARPS": 16, "DEPTH": 16, "RESIDENTS": 1}, lambda n: False, False),
    ]
    old = {name: getattr(stream, name) for name in ("WARPS", "DEPTH", "RESIDENTS", "NEAR")}
    for name, numbers, keeps, by_capture in rows:
        for key, value in (old | numbers).items():
            setattr(stream, key, value)
        program = poot.compile({"decode": graph}, "cuda:0", cache=False)
        with_overlap(program, keeps)
        session = program.bind(weights, allow_nonfinite=True)
        direct = direct_us(session)
        if by_capture:
            captured(session)
        session.capture("decode")
        session.step("decode", tokens=np.array([5], np.int32), pos=np.int32(100))
        us = statistics.median(replay_us(session, 30) for _ in range(5))
        print(f"{name:<24} replay {us:8.1f} us  direct {direct:8.1f} us", flush=True)
        session.close()
        vars(program.device.driver).pop("record", None)  # type: ignore[union-attr]
        del session, program
        gc.collect()


if __name__ == "__main__":
    main()
