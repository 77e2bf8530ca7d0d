"""Hard cases of caches, threads, memory over time, and the time a compile takes."""

from __future__ import annotations

import gc
import os
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import poot
from poot import ops
from poot.api import Program, compile
from poot.ir.graph import Graph
from poot.ops import Array
from poot.oracle import run
from tests.support.everywhere import compile_on, on
from tests.support.hard import feed_of
from tests.support.sim_device import SimDevice
from tests.support.tol import assert_within
from tests.support.traced import graph_of, normal


def block(x: Array, w: Array) -> Array:
    """A small layer: two products, a norm, a softmax."""
    h = ops.softmax(ops.rms_norm(x, w[0], 1e-5) @ w)
    return x + h @ w


def block_graph() -> tuple[Graph, dict[str, np.ndarray]]:
    arrays = (normal(0, 4, 16), normal(1, 16, 16))
    graph = graph_of(block, *arrays)
    return graph, feed_of(graph, arrays)


def codes_of(program: Program) -> list[tuple[str, bytes]]:
    return [(c.key, c.binary) for c in program.codes]


def test_case_130_no_broken_entry_of_a_cache_is_ever_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("POOT_CACHE_DIR", str(tmp_path))
    graph, _ = block_graph()
    want = codes_of(compile(graph, target="lavapipe", cache=False))
    assert codes_of(compile(graph, target="lavapipe")) == want
    entries = sorted(p for p in tmp_path.rglob("*") if p.is_file())
    assert len(entries) >= 2
    for n, path in enumerate(entries):
        data = path.read_bytes()
        half = data[: len(data) // 2]
        flipped = data[:-5] + bytes([data[-5] ^ 1]) + data[-4:]
        path.write_bytes((half, flipped, b"", entries[n - 1].read_bytes())[n % 4])
    assert codes_of(compile(graph, target="lavapipe")) == want
    assert codes_of(compile(graph, target="lavapipe")) == want


def in_threads(count: int, work: Callable[[int], None]) -> None:
    """Runs work(0), work(1), ... at once; raises what one raised. No thread may take a minute."""
    failed: list[BaseException] = []

    def guarded(n: int) -> None:
        try:
            work(n)
        except (Exception, pytest.fail.Exception) as e:
            failed.append(e)
            raise

    threads = [threading.Thread(target=guarded, args=(n,), daemon=True) for n in range(count)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(60)
        assert not t.is_alive(), "a thread hangs"
    assert failed == []


@pytest.mark.filterwarnings("default::pytest.PytestUnhandledThreadExceptionWarning")
@on(but="emulated")
def test_case_131_eight_threads_step_sessions_of_one_program(target: str):
    graph, feed = block_graph()
    program = compile_on(target, graph)
    steps = 4 if target == "simulator" else 25
    results: list[np.ndarray] = [np.zeros(0)] * 8

    def work(n: int) -> None:
        given = {name: x + np.float32(n / 16) for name, x in feed.items()}
        want = run(graph, given).outputs[0]
        session = program.bind(given)
        for _ in range(steps):
            results[n] = np.asarray(session.step())
            assert_within(results[n], want, "matmul")
        session.close()

    in_threads(8, work)
    # A result outlives the thread that made it.
    for n, got in enumerate(results):
        given = {name: x + np.float32(n / 16) for name, x in feed.items()}
        assert_within(got, run(graph, given).outputs[0], "matmul")


@pytest.mark.filterwarnings("default::pytest.PytestUnhandledThreadExceptionWarning")
@on(but="emulated")
def test_case_131_eight_threads_compile_at_once(target: str):
    def work(n: int) -> None:
        arrays = (normal(0, 4, 8 + n), normal(1, 8 + n, 8 + n))
        graph = graph_of(block, *arrays)
        feed = feed_of(graph, arrays)
        session = compile_on(target, graph, fresh=True).bind(feed)
        assert_within(np.asarray(session.step()), run(graph, feed).outputs[0], "matmul")
        session.close()

    in_threads(8, work)


def decode_graph() -> Graph:
    def step(cache: Array, x: Array, pos: Array) -> object:
        cache = ops.dynamic_update_slice(cache, x, pos, 0)
        return ops.softmax(x @ cache.swapaxes(0, 1)) @ cache, cache

    specs = (
        poot.state((64, 32)),
        poot.slot((1, 32), "f32"),
        poot.slot((), kind="pos", range=(0, 64)),
    )
    return poot.trace(step, specs)


def resident_nbytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@on(but="simulator emulated")
def test_case_132_steps_and_compiles_leave_no_memory_behind(target: str):
    graph = decode_graph()
    session = compile_on(target, graph).bind({})
    x = normal(0, 1, 32)

    def steps(count: int) -> None:
        for n in range(count):
            session.step(x=x * np.float32(n % 7), pos=np.int32(n % 64))

    def compiles(count: int) -> None:
        for _ in range(count):
            other = compile_on(target, graph, fresh=True).bind({})
            other.step(x=x, pos=np.int32(0))
            other.close()
        gc.collect()

    steps(300)
    compiles(8)
    before = resident_nbytes()
    steps(1000)
    compiles(16)
    session.close()
    assert resident_nbytes() - before < 16 << 20


def test_case_132_a_closed_session_gives_back_every_byte():
    device = SimDevice()
    program = compile(decode_graph(), target=device.limits, cache=False)
    program = replace(program, device=device)
    session = program.bind({})
    held = device.allocated
    assert held > 0
    for n in range(20):
        session.step(x=normal(0, 1, 32), pos=np.int32(n))
    assert device.allocated == held
    fork = session.fork()
    assert device.allocated > held
    fork.close()
    session.close()
    assert device.allocated == 0


def seconds(graph: Graph) -> float:
    """This thread's processor time of a compile without a device, the least of three."""
    found: list[float] = []
    for _ in range(3):
        start = time.thread_time()
        compile(graph, target="lavapipe", cache=False)
        found.append(time.thread_time() - start)
    return min(found)


def residual(layers: int) -> Graph:
    """Layers in which each value is used twice."""

    def fn(x: Array, w: Array) -> object:
        for _ in range(layers):
            h = x @ w
            x = x + ops.silu(h) * h
        return x

    return poot.trace(fn, (poot.weight((8, 64)), poot.weight((64, 64))))


def elementwise(steps: int) -> Graph:
    def fn(x: Array) -> object:
        for n in range(steps):
            x = x * 0.5 + x if n % 2 else ops.tanh(x) - x
        return x

    return poot.trace(fn, (poot.weight((64,)),))


def test_case_133_compile_time_grows_with_the_layers_and_no_faster():
    seconds(residual(10))
    few, many = seconds(residual(20)), seconds(residual(40))
    assert many < 2.5 * few + 0.01


def test_case_133_a_chain_of_20000_steps_compiles_without_recursion():
    short, long = elementwise(1000), elementwise(10000)  # two eqns a step
    few = seconds(short)
    start = time.thread_time()
    program = compile(long, target="lavapipe", cache=False)
    # Ten times as many steps: a quadratic pass would take a hundred times as long.
    assert time.thread_time() - start < 30 * few
    assert len(program.codes) < 20
