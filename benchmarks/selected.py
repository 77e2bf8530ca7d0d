"""Block-selected attention beside dense attention over the same cache: a decode at a long context.
Dense, selected (indexer, best blocks, attention) and the indexer alone take turns, so that each
finds the caches as the others left them.

    python -m benchmarks.selected --target cuda --out benchmarks/results [--batch 1 32]

On the CPU a step is timed launch by launch; on a card as replays back to back, over `layers` caches
where one's selection would stay in its level-2 cache, and per layer. Checks first: where every
block is selected the result equals dense attention, and at full size the selected output is
compared with f64 numpy on a few rows. Writes selected-<target>-<date>.json; a table comes last.
Bytes count K, V and block keys that have to be read, once each. `benchmarks.selected_card` times
each launch of the card alone.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import sys
import time
import traceback
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np

import poot
from benchmarks.record import save
from poot import ops
from poot.backends.cpu.machine import description
from poot.backends.cuda.device import CudaDevice
from poot.ir.dtypes import DTYPES
from poot.ops import Array
from poot.session import Session

# Layers whose selection together is past the card's level-2 cache.
LAYERS, LEAST_INDEXED, REPLAYS = 8, 4, 10


@dataclass(frozen=True, slots=True)
class Size:
    """A decode: rows, keys, heads and widths, the indexer's heads and width, blocks."""

    batch: int
    keys: int
    heads: int
    kv_heads: int
    width: int
    index_heads: int
    index_width: int
    ratio: int
    selected: int
    dtype: str
    layers: int = 1

    @property
    def blocks(self) -> int:
        return self.keys // self.ratio

    def layers_of(self, entry: str) -> int:
        """Layers of an entry point: of the indexer some more, its keys being few."""
        return max(self.layers, LEAST_INDEXED) if entry == "indexer" else self.layers

    def nbytes(self, entry: str) -> int:
        """Bytes that have to be read: keys and values, block keys."""
        each = DTYPES[self.dtype].nbytes
        row = 2 * self.kv_heads * self.width * each
        index = self.blocks * self.index_width * each
        rows = {
            "dense": self.keys * row,
            "indexer": index,
            "selected": index + (self.selected + 1) * self.ratio * row,
        }
        return self.batch * rows[entry]


Layers = tuple[tuple[Array, Array], ...]
# The typical sizes of the public model; the CPU's is a quarter of them in context.
SIZES = {
    "cuda": Size(1, 131072, 24, 2, 256, 4, 128, 4, 512, "bf16"),
    "cpu": Size(1, 32768, 24, 2, 256, 4, 128, 4, 512, "f32"),
}
BATCHES = {"cuda": (1, 32), "cpu": (1,)}
ENTRIES = ("dense", "selected", "indexer")


def graphs(size: Size) -> dict[str, object]:
    """The three entry points over one cache."""
    s = size
    cache = poot.state((s.batch, s.kv_heads, s.keys, s.width), s.dtype)
    blocks = poot.state((s.batch, s.blocks, s.index_width), s.dtype)
    q = poot.slot((s.batch, s.heads, 1, s.width), s.dtype)
    index = poot.slot((s.batch, s.index_heads, 1, s.index_width), s.dtype)
    pos = poot.slot((s.batch,), "i32", kind="pos", range=(0, s.keys))
    scale = s.width**-0.5

    def dense(kv: Layers, q: Array, pos: Array) -> object:
        return [ops.attention_live(q, *layer, pos + 1, scale=scale) for layer in kv], kv

    def selected(
        kv: Layers, blocks: tuple[Array, ...], q: Array, index: Array, pos: Array
    ) -> object:
        at, outs = pos.reshape(s.batch, 1), []
        for layer, keys in zip(kv, blocks, strict=True):
            ids = ops.block_topk(ops.block_scores(index, keys), at, s.selected, s.ratio)
            out = ops.attention_selected(q, *layer, ids, at, ratio=s.ratio, scale=scale)
            outs.append((out, ids))
        return outs, (kv, blocks)

    def indexer(blocks: tuple[Array, ...], index: Array) -> object:
        return [ops.block_scores(index, keys) for keys in blocks], blocks

    caches, keys = ((cache, cache),) * s.layers, (blocks,) * s.layers
    all_keys = (blocks,) * s.layers_of("indexer")
    return {
        "dense": poot.trace(dense, (caches, q, pos)),
        "selected": poot.trace(selected, (caches, keys, q, index, pos)),
        "indexer": poot.trace(indexer, (all_keys, index)),
    }


def opened(size: Size, target: str) -> tuple[Session, dict[str, np.ndarray], dict[str, np.ndarray]]:
    """A session over a full cache, its slots, and what lies in the cache."""
    program = poot.compile(graphs(size), target)
    session = program.bind()
    rng, held = np.random.default_rng(0), DTYPES[size.dtype].numpy
    stock = rng.standard_normal(1 << 22, np.float32).astype(held)
    states: dict[str, np.ndarray] = {}
    for n, (name, i) in enumerate(session.state_inputs.items()):
        elems, shape = i.var.type.elems, i.var.type.shape
        states[name] = np.resize(np.roll(stock, 7919 * n), elems).reshape(shape)
        session.state[name] = states[name]
    slots: dict[str, np.ndarray] = {
        "q": rng.standard_normal((size.batch, size.heads, 1, size.width), np.float32).astype(held),
        "index": rng.standard_normal(
            (size.batch, size.index_heads, 1, size.index_width), np.float32
        ).astype(held),
        "pos": np.full(size.batch, size.keys - 2, np.int32),
    }
    return session, slots, states


def taken(entry: str, slots: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    names = {"dense": ("q", "pos"), "indexer": ("index",), "selected": tuple(slots)}[entry]
    return {n: slots[n] for n in names}


def check(size: Size, target: str) -> dict[str, float]:
    """The largest difference of selected and dense where everything is selected."""
    small = replace(size, keys=size.ratio * 64, selected=64, batch=2, layers=1)
    session, slots, _ = opened(small, target)
    ((out, _),) = session.step("selected", **slots)
    (dense,) = session.step("dense", **taken("dense", slots))
    session.close()
    return {"all selected": float(np.abs(_wide(out) - _wide(dense)).max())}


def _wide(x: object) -> np.ndarray:
    return np.asarray(x).astype(np.float64)


def check_rows(size: Size, out: np.ndarray, ids: np.ndarray, states: dict, slots: dict) -> float:
    """The largest difference from f64 numpy over the keys that the ids name, first and last row."""
    worst, place = 0.0, size.keys - 2
    k, v = (states[f"kv.0.{i}"] for i in (0, 1))
    for b in {0, size.batch - 1}:
        listed = ids[b, 0, 0][ids[b, 0, 0] >= 0]
        keys = (listed[:, None] * size.ratio + np.arange(size.ratio)).reshape(-1)
        tail = np.arange((place + 1) // size.ratio * size.ratio, place + 1)
        keys = np.concatenate([keys, tail])
        for h in range(size.heads):
            g = h * size.kv_heads // size.heads
            s = _wide(k[b, g, keys]) @ _wide(slots["q"][b, h, 0]) * size.width**-0.5
            e = np.exp(s - s.max())
            worst = max(
                worst, float(np.abs(e / e.sum() @ _wide(v[b, g, keys]) - out[b, h, 0]).max())
            )
    return worst


def replayed(session: Session, entry: str, slots: dict[str, np.ndarray]) -> float:
    """Microseconds of a captured step."""
    device = session.program.device
    assert isinstance(device, CudaDevice), device
    session.step(entry, device_outputs=True, **slots)
    device.synchronize()
    start = time.perf_counter()
    for _ in range(REPLAYS):
        session.runner.run(entry)
    device.synchronize()
    return 1e6 * (time.perf_counter() - start) / REPLAYS


def measure(size: Size, target: str, rounds: int) -> dict[str, object]:
    """Checks and times of one size."""
    session, slots, states = opened(size, target)
    on_card = isinstance(session.program.device, CudaDevice)
    for entry in ENTRIES if on_card else ():
        session.capture(entry)
    out, ids = session.step("selected", **slots)[0]
    worst = check_rows(size, _wide(out), np.asarray(ids), states, slots)
    del states
    times: dict[str, list[float]] = {e: [] for e in ENTRIES}
    parts: dict[str, list[float]] = {}
    for n in range(rounds + 2):
        for entry in ENTRIES:
            if on_card:
                us = replayed(session, entry, taken(entry, slots)) / size.layers_of(entry)
                if n >= 2:
                    times[entry].append(us)
                continue
            got = session.profile(entry, **taken(entry, slots))
            if n < 2:
                continue
            times[entry].append(got.us / size.layers_of(entry))
            for step, kernel, us in got.launches if entry == "selected" else ():
                parts.setdefault(f"{kernel} ({step})", []).append(us)
    session.close()
    middle = {e: statistics.median(t) for e, t in times.items()}
    return {
        "size": asdict(size), "worst of two rows": worst,
        "us": {e: {"median": t, "best": min(times[e]), "worst": max(times[e])}
               for e, t in middle.items()},
        "GB/s": {e: size.nbytes(e) / t / 1e3 for e, t in middle.items()},
        "times faster than dense": middle["dense"] / middle["selected"],
        "bytes allow": size.nbytes("dense") / size.nbytes("selected"),
        **({"launches": {name: [statistics.median(t), min(t)] for name, t in parts.items()}}
           if parts else {}),
    }  # fmt: skip


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--target", default="cpu", choices=tuple(SIZES))
    parser.add_argument("--batch", type=int, nargs="*")
    parser.add_argument("--keys", type=int)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--out", type=Path, default=Path(os.environ.get("OUT", "build")))
    options = parser.parse_args(argv)
    size = SIZES[options.target]
    size = replace(size, keys=options.keys or size.keys)
    card = description() if options.target == "cpu" else _card(options.target)
    record: dict[str, object] = {
        "machine": card, "python": platform.python_version(), "date": time.strftime("%Y-%m-%d"),
        "command": "python -m benchmarks.selected " + " ".join(argv or sys.argv[1:]),
        "rows": {},
    }  # fmt: skip
    options.out.mkdir(parents=True, exist_ok=True)
    path = options.out / f"selected-{options.target}-{record['date']}.json"
    rows: dict[str, object] = {}
    try:
        rows["check"] = check(size, options.target)
    except poot.errors.PootError as e:
        rows["check"] = {"failed": str(e)}
    for batch in options.batch or BATCHES[options.target]:
        try:
            layers = LAYERS if options.target == "cuda" and batch < 8 else 1
            rows[f"batch {batch}"] = measure(
                replace(size, batch=batch, layers=layers), options.target, options.rounds
            )
        except (poot.errors.PootError, MemoryError):
            rows[f"batch {batch}"] = {"failed": traceback.format_exc()}
        record["rows"] = rows
        save(path, record)
    print(card)
    for name, row in rows.items():
        print(name, json.dumps(row, indent=1))
    return 0


def _card(target: str) -> str:
    """The name of the first such device."""
    return next((d.limits.name for d in poot.devices() if d.name.startswith(target)), target)


if __name__ == "__main__":
    raise SystemExit(main())
