"""The CPU target beside its peers, in one process, alternating, on the same weights and threads:
SmolLM2-135M decode and prefill, attention alone, a product of 1024, compile time.

    NODE_LLAMA_CPP=folder python -m benchmarks.cpu --threads 2 --out benchmarks/results

Writes cpu-<date>.json and a plot. Times are wall seconds, median and best of the rounds; a row's
ratio is of medians in its run. `--only product attention` runs parts and leaves the other rows of
that record as they are, so that each run is short enough to have the machine to itself.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import gguf
import matplotlib
import numpy as np
import torch
from matplotlib import pyplot

import poot
from benchmarks.cpu_peers import TorchDecoder, llama_cpp, sdpa, torch_model, write_gguf
from benchmarks.record import commit, save
from poot import ops
from poot.backends.cpu.machine import description, limits
from poot.llm.load import load_model, read_checkpoint
from poot.session import Session
from tests.support.smollm2 import smollm2_path

CAPACITY, PROMPT = 640, 512
KINDS = {"file": "Q4_1", "bf16": "BF16", "f32": "F32"}
PARTS = ("product", "attention", "compile", *KINDS.values())
COLD = """
import sys, time
from poot import api
from poot.llm.load import read_checkpoint, trace_model
from tests.support.smollm2 import smollm2_path
checkpoint = read_checkpoint(smollm2_path())
start = time.perf_counter()
graphs = trace_model(checkpoint, capacity=640, buckets=(1, 512), dtype=sys.argv[1])
api.compile(graphs, "cpu")
print(time.perf_counter() - start)
"""

Rows = dict[str, dict[str, list[float]]]


REST = 0.3  # seconds before each measurement: OpenBLAS and OpenMP threads spin after their work


def seconds(body: Callable[[], object]) -> float:
    """Wall seconds of one run, once every other runtime's threads have gone to sleep."""
    time.sleep(REST)
    start = time.perf_counter()
    body()
    return time.perf_counter() - start


def bandwidth(threads: int) -> float:
    """GB/s of numpy's sum over 256 MiB a thread, best of five."""
    parts = [np.ones(64 << 20, np.float32) for _ in range(threads)]
    with ThreadPoolExecutor(threads) as pool:
        best = min(seconds(lambda: list(pool.map(np.sum, parts))) for _ in range(5))
    return sum(p.nbytes for p in parts) / best / 1e9


def decode(session: Session, count: int) -> Callable[[], None]:
    def run() -> None:
        for n in range(count):
            session.step("decode", tokens=np.array([100 + n], np.int32), pos=np.int32(PROMPT + n))

    return run


def prefill(session: Session) -> Callable[[], None]:
    tokens = np.arange(100, 100 + PROMPT, dtype=np.int32)
    slots = {"tokens": tokens, "pos": np.int32(0), "last": np.int32(PROMPT - 1)}
    return lambda: session.step(f"prefill_{PROMPT}", **slots)


def torch_decode(decoder: TorchDecoder, count: int) -> Callable[[], None]:
    def run() -> None:
        for n in range(count):
            decoder.step(np.array([100 + n]))

    return run


def model_rows(rounds: int, threads: int, tokens: int, kinds: Sequence[str]) -> Rows:
    """Tokens a second of each runtime and weight type. The bound of a decode is one read of every
    weight, at the rate of a sum measured in the same round."""
    checkpoint = read_checkpoint(smollm2_path())
    rows: Rows = {}

    def note(name: str, who: str, rate: float) -> None:
        rows.setdefault(name, {}).setdefault(who, []).append(rate)

    with tempfile.TemporaryDirectory() as folder:
        for dtype, kind in KINDS.items():
            if kind not in kinds:
                continue
            path = smollm2_path()
            if dtype != "file":
                path = Path(folder) / f"{kind}.gguf"
                write_gguf(checkpoint.file, smollm2_path(), path, kind)
            model = load_model(
                checkpoint, target="cpu", capacity=CAPACITY, buckets=(1, PROMPT), dtype=dtype
            )
            peer = TorchDecoder(torch_model(checkpoint.file, dtype)) if dtype != "file" else None
            nbytes = sum(int(t.n_bytes) for t in gguf.GGUFReader(path).tensors)
            for n in range(rounds + 1):
                times = (seconds(prefill(model.session)), seconds(decode(model.session, tokens)))
                if n:
                    note(f"prefill {kind}", "poot", PROMPT / times[0])
                    note(f"decode {kind}", "poot", tokens / times[1])
                    note(f"decode {kind}", "bound", bandwidth(threads) * 1e9 / nbytes)
                if peer is not None:
                    peer.reset()
                    first = seconds(lambda p=peer: p.step(np.arange(100, 100 + PROMPT)))
                    then = seconds(torch_decode(peer, tokens))
                    if n:
                        note(f"prefill {kind}", "torch", PROMPT / first)
                        note(f"decode {kind}", "torch", tokens / then)
                got = llama_cpp(path, threads, PROMPT, tokens) if n else None
                if got is not None:
                    note(f"prefill {kind}", "llama.cpp", PROMPT / got["prefill_s"])
                    note(f"decode {kind}", "llama.cpp", 1 / got["decode_s"])
            model.session.close()
    return rows


def attention_rows(rounds: int) -> Rows:
    """Milliseconds of attention alone, f32: a causal prompt of 1024, a decode over 4096 keys."""
    rng = np.random.default_rng(0)
    rows: Rows = {}
    for name, rows_, keys in (
        ("attention prefill 1024", 1024, 1024),
        ("attention decode 4096", 1, 4096),
    ):
        q = rng.standard_normal((1, 16, rows_, 64), np.float32)
        k, v = (rng.standard_normal((1, 16, keys, 64), np.float32) for _ in range(2))
        causal = rows_ > 1

        def attend(q, k, v, causal=causal):
            return ops.attention_prefill(q, k, v, scale=0.125, causal=causal)

        specs = {n: poot.slot(x.shape, "f32") for n, x in (("q", q), ("k", k), ("v", v))}
        session = poot.compile(poot.trace(attend, specs), "cpu").bind()
        theirs = sdpa(q, k, v, causal)
        got = np.asarray(session.step(q=q, k=k, v=v))
        np.testing.assert_allclose(got.reshape(q.shape), theirs(), rtol=0, atol=2e-5)
        runner = session.runner
        for _ in range(rounds * 4):
            rows.setdefault(name, {}).setdefault("poot", []).append(
                1e3 * seconds(lambda r=runner: r.run("main"))
            )
            rows[name].setdefault("torch", []).append(1e3 * seconds(theirs))
    return rows


def product_rows(rounds: int) -> Rows:
    """GFLOP/s of an f32 product of 1024, a weight on the right and not."""
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal((1024, 1024), np.float32) for _ in range(2))
    rows: Rows = {}
    for name, storage in (("product 1024", poot.weight), ("product 1024, no weight", poot.slot)):
        specs = {"a": poot.slot(a.shape, "f32"), "b": storage(b.shape, "f32")}
        program = poot.compile(poot.trace(lambda a, b: ops.matmul(a, b), specs), "cpu")
        session = program.bind({"b": b} if storage is poot.weight else {})
        feed = {"a": a} if storage is poot.weight else {"a": a, "b": b}
        np.testing.assert_allclose(
            np.asarray(session.step(**feed)).reshape(a.shape), a @ b, rtol=0, atol=2e-3
        )
        runner = session.runner
        for _ in range(rounds * 4):
            ours = seconds(lambda r=runner: r.run("main"))
            rows.setdefault(name, {}).setdefault("poot", []).append(2 * 1024**3 / ours / 1e9)
            rows[name].setdefault("numpy", []).append(2 * 1024**3 / seconds(lambda: a @ b) / 1e9)
    return rows


def compile_rows() -> Rows:
    """Seconds from tracing to kernels in a fresh process: an empty cache, then a warm one."""
    rows: Rows = {}
    for dtype, kind in KINDS.items():
        with tempfile.TemporaryDirectory() as cache:
            environ = os.environ | {"POOT_CACHE_DIR": cache}
            for name in ("cold", "warm"):
                done = subprocess.run(
                    [sys.executable, "-c", COLD, dtype], capture_output=True, text=True,
                    check=True, env=environ,
                )  # fmt: skip
                rows.setdefault(f"compile {kind}", {})[name] = [float(done.stdout)]
    return rows


def summary(rows: Rows) -> dict[str, object]:
    """Median, best and worst of each, and poot's ratio to each peer (above 1: poot ahead)."""
    out: dict[str, object] = {}
    for name, peers in rows.items():
        lower = name.startswith(("attention", "compile"))
        middle = {who: statistics.median(x) for who, x in peers.items()}
        row: dict[str, object] = {
            who: {
                "median": round(middle[who], 3), "best": round((min if lower else max)(x), 3),
                "worst": round((max if lower else min)(x), 3), "rounds": len(x),
            }
            for who, x in peers.items()
        }  # fmt: skip
        for who in peers:
            if who != "poot" and "poot" in middle:
                ratio = middle["poot"] / middle[who]
                row[f"ratio to {who}"] = round(1 / ratio if lower else ratio, 3)
        out[name] = row
    return out


def merged(path: Path, record: dict[str, object]) -> dict[str, object]:
    """The record with the runs before it and the rows that only those have."""
    if not path.exists():
        return record
    before = json.loads(path.read_text())
    return {
        **record,
        "runs": before.get("runs", []) + record["runs"],
        "rows": before["rows"] | record["rows"],
    }


def plot(rows: dict[str, dict[str, object]], target: Path) -> None:
    """Bars of decode and prefill rates by weight type."""
    matplotlib.use("Agg")
    figure, axes = pyplot.subplots(1, 2, figsize=(10, 4))
    for axis, what in zip(axes, ("decode", "prefill"), strict=True):
        kinds = [k for k in KINDS.values() if f"{what} {k}" in rows]
        for at, who in enumerate(("poot", "llama.cpp", "torch")):
            found = [rows[f"{what} {k}"].get(who, {"median": 0.0}) for k in kinds]
            heights = [row["median"] for row in found]
            axis.bar([n + 0.27 * (at - 1) for n in range(len(kinds))], heights, 0.25, label=who)
        axis.set_xticks(range(len(kinds)), kinds)
        axis.set_title(f"SmolLM2-135M {what}, tokens a second")
        axis.legend()
    figure.tight_layout()
    figure.savefig(target, dpi=110)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=limits().cores)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--tokens", type=int, default=48)
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--out", type=Path, default=None)
    options = parser.parse_args(argv)
    os.environ["POOT_THREADS"] = str(options.threads)
    torch.set_num_threads(options.threads)
    load = os.getloadavg()[0]
    rows: Rows = {"read GB/s": {"numpy": [bandwidth(options.threads)]}}
    for part, measured in (("product", product_rows), ("attention", attention_rows)):
        rows |= measured(options.rounds) if part in options.only else {}
    rows |= compile_rows() if "compile" in options.only else {}
    rows |= model_rows(options.rounds, options.threads, options.tokens, options.only)
    record = {
        "machine": description(), "arch": limits().arch, "threads": options.threads,
        "python": platform.python_version(),
        "torch": torch.__version__, "numpy": np.__version__, "date": time.strftime("%Y-%m-%d"),
        "runs": [{
            "command": "python -m benchmarks.cpu " + " ".join(argv or sys.argv[1:]),
            "commit": commit(),
            "load at start": load, "load at end": os.getloadavg()[0],
        }],
        "rows": summary(rows),
    }  # fmt: skip
    if options.out is not None:
        options.out.mkdir(parents=True, exist_ok=True)
        base = options.out / f"cpu-{record['date']}"
        record = merged(base.with_suffix(".json"), record)
        save(base.with_suffix(".json"), record)
        plot(record["rows"], base.with_suffix(".png"))
    print(json.dumps(record, indent=1))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
