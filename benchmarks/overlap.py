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
SMALL = {"WARPS": 16, "DEPTH": 8, "RESIDENTS": 2}


def every(name: str) -> bool:
    return True


def none(name: str) -> bool:
    return False


def streams(name: str) -> bool:
    return "attention" not in name


def with_overlap(program: poot.Program, keeps: Keeps) -> None:
    """The program's launches overlap where `keeps` says so of their kernel's name."""
    for request, low in list(program.lowered.items()):
        calls = tuple(
            replace(c, attributes=replace(c.attributes,
                                          overlap=c.attributes.overlap and keeps(c.kernel.name)))
            for c in low.calls
        )  # fmt: skip
        program.lowered[request] = Lowered(calls)  # type: ignore[index]


def with_carveout(driver: object, percent: int) -> None:
    """Kernels that stream ask for that share of workgroup memory, of what a unit has with its
    level-1 cache."""
    from cuda.bindings import driver as cu

    plain = type(driver).load

    def load(image: bytes, name: str, dynamic_nbytes: int) -> object:
        made = plain(driver, image, name, dynamic_nbytes)
        kind = cu.CUfunction_attribute.CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT
        if name == "stream" and percent >= 0:
            with driver._current():  # type: ignore[attr-defined]
                cu.cuFuncSetAttribute(made.handle, kind, percent)
        return made

    vars(driver)["load"] = load


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
    rows: list[tuple[str, dict[str, int], Keeps, int]] = [
        ("chosen", {}, every, -1),
        ("chosen, none overlap", {}, none, -1),
        ("chosen, but attention", {}, streams, -1),
        ("chosen, carveout 25", {}, every, 25),
        ("chosen, carveout 100", {}, every, 100),
        ("16x8, 2 a unit", SMALL, every, -1),
        ("16x8, 2 a unit, none", SMALL, none, -1),
    ]
    old = {name: getattr(stream, name) for name in ("WARPS", "DEPTH", "RESIDENTS")}
    for name, numbers, keeps, percent in rows:
        for key, value in (old | numbers).items():
            setattr(stream, key, value)
        program = poot.compile({"decode": graph}, "cuda:0", cache=False)
        with_overlap(program, keeps)
        with_carveout(program.device.driver, percent)  # type: ignore[union-attr]
        session = program.bind(weights, allow_nonfinite=True)
        direct = direct_us(session)
        session.capture("decode")
        session.step("decode", tokens=np.array([5], np.int32), pos=np.int32(100))
        us = statistics.median(replay_us(session, 30) for _ in range(5))
        print(f"{name:<24} replay {us:8.1f} us  direct {direct:8.1f} us", flush=True)
        session.close()
        vars(program.device.driver).pop("load", None)  # type: ignore[union-attr]
        del session, program
        gc.collect()


if __name__ == "__main__":
    main()
