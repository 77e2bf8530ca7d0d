"""Serving SmolLM2 on one device: tokens a second and the first token's time by how many requests
come at once, what a cached prefix saves, whether a request's text depends on its company, and what
each kind of cache takes. Prints a short table last; `benchmarks.serving_plot` draws the record.

python -m benchmarks.serving --target cuda:0 --out results.json
python -m benchmarks.serving --target cpu --parts load,prefix,company --out results.json
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

import poot
from benchmarks.record import save
from poot.llm.engine import Engine
from poot.llm.layout import Layout
from poot.llm.load import Checkpoint, read_checkpoint
from poot.llm.paged import KV_TYPES
from poot.llm.request import Handle, Request, Result
from poot.llm.sampling import Sampling
from poot.llm.serving import Served, serve_model
from tests.support.smollm2 import smollm2_path

PREFIX = 2000
PROMPT, NEW = 64, 32  # tokens of each request of `load`
CHUNKS = ((1, 16), (1, 64), (4, 64))
GREEDY = Sampling()
NEAR = 1e-3
TEXTS = (
    "The capital of France is", "A compiler takes a program", "One, two, three,", "Water boils at",
    "The three primary colours are", "In the beginning", "def add(a, b):", "Once upon a time",
)  # fmt: skip


@dataclass(slots=True)
class Sheet:
    """Results by name, and which of them were not as they have to be."""

    rows: dict[str, object] = field(default_factory=dict[str, object])
    failed: list[str] = field(default_factory=list[str])

    def note(self, name: str, value: object, is_good: bool = True) -> None:
        self.rows[name] = value
        if not is_good:
            self.failed.append(name)
        print(f"{name}: {value}{'' if is_good else '  <- NOT AS IT HAS TO BE'}", flush=True)


def timed(engine: Engine, prompt: Sequence[int]) -> float:
    """Seconds to the first token."""
    handle = engine.submit(Request(tuple(prompt), 1))
    engine.run()
    finish = handle.result(0).finish
    assert finish.first is not None
    return finish.first


def load(engine: Engine, vocab: int, most: int, sheet: Sheet) -> None:
    """1, 2, 4 .. `most` requests at once, of PROMPT tokens and NEW new ones, three times each."""
    rng = np.random.default_rng(2)
    rows: dict[str, dict[str, float]] = {}
    for count in (1 << i for i in range(most.bit_length())):
        rates: list[float] = []
        firsts: list[float] = []
        for _ in range(3):
            prompts = rng.integers(0, vocab, (count, PROMPT))
            began = time.perf_counter()
            handles = [engine.submit(Request(tuple(map(int, p)), NEW)) for p in prompts]
            engine.run()
            rates.append(count * NEW / (time.perf_counter() - began))
            firsts += [h.result(0).finish.first or 0.0 for h in handles]
        rows[str(count)] = {
            "new tokens/s": round(statistics.median(rates), 1), "best": round(max(rates), 1),
            "first token, s": round(statistics.median(firsts), 4),
        }  # fmt: skip
        print(f"{count} at once: {rows[str(count)]}", flush=True)
    sheet.rows["load"] = rows


def prefix(engine: Engine, vocab: int, sheet: Sheet) -> None:
    """The first token after a prompt of PREFIX tokens that is new, and one that shares them."""
    rng = np.random.default_rng(0)
    new: list[float] = []
    shared: list[float] = []
    for _ in range(3):
        tokens = [int(t) for t in rng.integers(0, vocab, PREFIX)]
        new.append(timed(engine, [*tokens, 5]))
        shared.append(timed(engine, [*tokens, 6, 7]))
    ratio = statistics.median(shared) / statistics.median(new)
    sheet.note(f"first token after {PREFIX} new tokens, s", [round(t, 4) for t in new])
    sheet.note(f"first token after {PREFIX} shared tokens, s", [round(t, 4) for t in shared])
    sheet.note("shared to new", round(ratio, 4), ratio <= 0.1)


def company(engine: Engine, checkpoint: Checkpoint, sheet: Sheet) -> None:
    """Greedy texts alone and together, equal up to the first place where the best two are near."""
    prompts = [tuple(checkpoint.tokenizer.encode(text)) for text in TEXTS]
    runs: list[list[Result]] = []
    for is_alone in (True, False):
        engine.scheduler.prefix.clear()
        handles: list[Handle] = []
        for prompt in prompts:
            handles.append(engine.submit(Request(prompt, 48, logprobs=2)))
            if is_alone:
                engine.run()
        engine.run()
        runs.append([h.result(0) for h in handles])
    clear = total = equal = 0
    is_same = True
    for alone, together in zip(*runs, strict=True):
        gaps = [row.top[0][1] - row.top[1][1] for row in alone.logprobs]
        until = next((i for i, gap in enumerate(gaps) if gap < NEAR), len(gaps))
        is_same &= alone.tokens[:until] == together.tokens[:until]
        total, clear = total + len(gaps), clear + sum(gap >= NEAR for gap in gaps)
        equal += sum(a == b for a, b in zip(alone.tokens, together.tokens, strict=True))
    sheet.note("places where the best two are clear", f"{clear} of {total}", clear >= 0.9 * total)
    sheet.note("equal up to the first that is not", is_same, is_same)
    sheet.note("tokens that are equal in all", f"{equal} of {total}")


def throughput(
    engine: Engine,
    vocab: int,
    requests: int,
    sheet: Sheet,
    name: str,
    how: Sampling = GREEDY,
) -> None:
    """Requests of 16 to 255 tokens and 64 new ones, all submitted at once."""
    rng = np.random.default_rng(1)
    before = engine.metrics()
    began = time.perf_counter()
    for _ in range(requests):
        prompt = tuple(int(t) for t in rng.integers(0, vocab, int(rng.integers(16, 256))))
        engine.submit(Request(prompt, 64, how))
    engine.run()
    took = time.perf_counter() - began
    after = engine.metrics()
    made = after.new_tokens - before.new_tokens
    sheet.note(f"{name}: new tokens/s of {requests} requests", round(made / took, 1))
    used = requests and (after.rows - before.rows)
    padded = after.padding * after.rows - before.padding * before.rows
    sheet.note(f"{name}: padding", round(padded / used, 4), padded / used < 0.25)


def about(target: str) -> dict[str, object]:
    """What a record needs besides figures."""
    said = [d.description for d in poot.devices() if d.name in (target, f"{target}:0")]
    return {
        "target": target,
        "machine": said[0] if said else target,
        "python": platform.python_version(),
        "date": time.strftime("%Y-%m-%d"),
        "command": "python -m benchmarks.serving " + " ".join(sys.argv[1:]),
        "load at start": round(os.getloadavg()[0], 2),
    }


def served(checkpoint: Checkpoint, how: Layout, target: str, dtype: str) -> Served:
    began = time.perf_counter()
    made = serve_model(checkpoint, how, target=target, dtype=dtype)
    print(f"{how.kv} cache ready in {time.perf_counter() - began:.1f} s", flush=True)
    return made


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--target", default="cpu")
    parser.add_argument("--dtype", default="file")
    parser.add_argument("--rows", default="1,4,8", help="decode entry points")
    parser.add_argument("--requests", type=int, default=32)
    parser.add_argument("--parts", default="load,prefix,company,throughput,sampled,kv")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    rows, parts = [int(n) for n in given.rows.split(",")], given.parts.split(",")
    sheet = Sheet(about(given.target))
    began = time.perf_counter()
    sheet.note("decode rows", rows)
    checkpoint = read_checkpoint(smollm2_path())
    vocab = checkpoint.config.vocab
    blocks = max(2 * 128, rows[-1] * 24) + 8
    big = Layout(blocks, PREFIX + 48, tuple(rows), CHUNKS, sampled="sampled" in parts)
    if set(parts) & {"load", "prefix", "company", "throughput", "sampled"}:
        made = served(checkpoint, big, given.target, given.dtype)
        if "load" in parts:
            load(made.engine, vocab, 2 * rows[-1], sheet)
        if "company" in parts:
            company(made.engine, checkpoint, sheet)
        if "prefix" in parts:
            prefix(made.engine, vocab, sheet)
        if "throughput" in parts:
            throughput(made.engine, vocab, given.requests, sheet, "f32 cache")
        if "sampled" in parts:
            how = Sampling(temperature=0.8, top_k=50, top_p=0.95)
            throughput(made.engine, vocab, given.requests, sheet, "sampled on the device", how)
        made.session.close()
    if "kv" in parts:
        few = tuple(sorted({rows[0], rows[-1]}))
        small = replace(big, capacity=384, decode_rows=few, prefill=((1, 64),), sampled=False)
        for kv in KV_TYPES:
            made = served(checkpoint, replace(small, kv=kv), given.target, given.dtype)
            throughput(made.engine, vocab, given.requests, sheet, f"{kv} cache, capacity 384")
            sheet.note(f"{kv}: bytes", dict(made.program.memory().spaces).get("states", 0))
            made.session.close()
    sheet.note("whole run, s", round(time.perf_counter() - began, 1))
    print("\n".join(f"{name:<60} {value}" for name, value in sheet.rows.items()))
    print("failed:", sheet.failed or "none")
    if given.out is not None:
        save(given.out, {"rows": sheet.rows, "failed": sheet.failed})


if __name__ == "__main__":
    main()
