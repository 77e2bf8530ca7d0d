"""The launches of a block-selected decode on a card, each alone and in a row, beside dense
attention over the same cache: poot's kernels over PyTorch's tensors, replayed as CUDA graphs over
several sets of caches, so that each call finds a cold cache.

    python -m benchmarks.selected_card --out benchmarks/results [--batch 1 8 32] [--variants]

Each kernel is compared with PyTorch first: scores and outputs with f64, ids exactly. Writes
selected-card-<date>.json; a table comes last. Bytes are those that have to be read, once each.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from benchmarks.card_kernels import Arguments, Built, Launcher, assemble, limits_of
from benchmarks.record import save
from poot.codegen.gen.lower import lower
from poot.codegen.ptx.emit import emit_ptx
from poot.errors import PootError
from poot.ir.text import parse
from poot.limits import DeviceLimits
from poot.planner.grouped import choose_grouped
from poot.planner.request import Choice, Request, Schedule
from poot.planner.schedules import choose
from poot.planner.steps import canonical_body

KEYS, HEADS, KV, WIDTH = 131072, 24, 2, 256
INDEX_HEADS, INDEX_WIDTH, RATIO, SELECTED = 4, 128, 4, 512
BLOCKS = KEYS // RATIO
SCALE = WIDTH**-0.5
COLD_NBYTES = 200_000_000
ROUNDS, REPLAYS = 15, 4
Change = Callable[[Choice], Choice]


@dataclass(frozen=True, slots=True)
class Named:
    """A kernel's name; the rest of what `card_kernels` asks of a row."""

    name: str
    schedule: str = ""
    numbers: None = None

    def text(self) -> str:
        return ""


def texts(batch: int) -> dict[str, str]:
    """Each launch's graph."""
    kv = f"bf16[{batch},{KV},{KEYS},{WIDTH}]"
    q = f"bf16[{batch},{HEADS},1,{WIDTH}]"
    scores, ids, at = (
        f"f32[{batch},1,1,{BLOCKS}]",
        f"i32[{batch},1,1,{SELECTED}]",
        f"i32[{batch},1]",
    )
    index = 1.0 / INDEX_WIDTH**0.5
    cache = f'slot v0: {q} "q"\nslot v1: {kv} "k"\nslot v2: {kv} "v"\n'
    return {
        "scores": f"in v0: bf16[{batch},{INDEX_HEADS},1,{INDEX_WIDTH}]\n"
        f"in v1: bf16[{batch},{BLOCKS},{INDEX_WIDTH}]\n"
        f"v2: {scores} = block_scores(v0, v1) scale={index}\nout v2",
        "topk": f"in v0: {scores}\nin v1: {at}\n"
        f"v2: {ids} = block_topk(v0, v1) k={SELECTED} ratio={RATIO}\nout v2",
        "attention": f'{cache}slot v3: {ids} "ids"\nslot v4: {at} "at" range=(0, {KEYS})\n'
        f"v5: {q} = selected_attention(v0, v1, v2, v3, v4) "
        f"operands=(q, k, v, ids, positions) ratio={RATIO} scale={SCALE}\nout v5",
        "dense": f'{cache}slot v3: i32[{batch}] "len" range=(1, {KEYS + 1})\n'
        f"v4: {q} = attention(v0, v1, v2, v3) operands=(q, k, v, len) scale={SCALE}\nout v4",
    }


def nbytes(name: str, batch: int) -> int:
    """Bytes that a launch has to read."""
    row = 2 * KV * WIDTH * 2
    return batch * {
        "scores": BLOCKS * INDEX_WIDTH * 2, "topk": BLOCKS * 4,
        "attention": (SELECTED + 1) * RATIO * row, "dense": KEYS * row,
        "chain": BLOCKS * INDEX_WIDTH * 2 + (SELECTED + 1) * RATIO * row,
    }[name]  # fmt: skip


@dataclass(slots=True)
class Caches:
    """Tensors of one set."""

    k: torch.Tensor
    v: torch.Tensor
    blocks: torch.Tensor
    scores: torch.Tensor
    ids: torch.Tensor
    out: torch.Tensor
    dense: torch.Tensor

    @staticmethod
    def of(batch: int) -> Caches:
        def normal(*shape: int) -> torch.Tensor:
            return torch.randn(*shape, device="cuda", dtype=torch.bfloat16)

        cache = (batch, KV, KEYS, WIDTH)
        out = (batch, HEADS, 1, WIDTH)
        return Caches(
            normal(*cache), normal(*cache), normal(batch, BLOCKS, INDEX_WIDTH),
            torch.empty(batch, 1, 1, BLOCKS, device="cuda"),
            torch.empty(batch, 1, 1, SELECTED, device="cuda", dtype=torch.int32),
            normal(*out), normal(*out),
        )  # fmt: skip


class Bench:
    """One batch: its tensors, its kernels."""

    def __init__(self, batch: int, limits: DeviceLimits, folder: Path) -> None:
        self.batch, self.limits, self.folder = batch, limits, folder
        touched = nbytes("chain", batch)
        sets = max(2, -(-COLD_NBYTES // touched)) if batch <= 4 else 2
        self.sets = [Caches.of(batch) for _ in range(sets)]
        bf16 = {"device": "cuda", "dtype": torch.bfloat16}
        self.q = torch.randn(batch, HEADS, 1, WIDTH, **bf16)
        self.index = torch.randn(batch, INDEX_HEADS, 1, INDEX_WIDTH, **bf16)
        self.at = torch.full((batch, 1), KEYS - 2, device="cuda", dtype=torch.int32)
        self.length = torch.full((batch,), KEYS - 1, device="cuda", dtype=torch.int32)
        self.scratch: list[torch.Tensor] = []

    def build(self, name: str, tag: str, change: Change | None) -> tuple[Built, dict, Choice] | str:
        """A launch's kernel, with the planner's numbers or others; or why there is none."""
        try:
            return self._built(name, tag, change)
        except (PootError, ValueError, KeyError, AssertionError) as e:
            return f"{type(e).__name__}: {e}"[:300]

    def _built(self, name: str, tag: str, change: Change | None) -> tuple[Built, dict, Choice]:
        body = canonical_body(parse(texts(self.batch)[name]))
        anchor = "attention" if name in ("attention", "dense") else "none"
        found = choose(body, anchor, (), self.limits)
        found = change(found) if change else found
        request = Request(body, anchor, (), found.layouts, found.schedule, found.scratch)
        (call,) = lower(request, self.limits).calls
        _, text = emit_ptx(call.kernel, self.limits)
        built = Built(Named(f"{name}{tag}_b{self.batch}"), call, text, found.reason, 0)
        return built, assemble(built, self.folder), found

    def arguments(self, name: str, made: Launcher, choice: Choice) -> list[Arguments]:
        """The kernel's arguments for each set."""
        scratch = [
            torch.full((s.elems,), -1, dtype=torch.int32, device="cuda") for s in choice.scratch
        ]
        self.scratch += scratch
        words = {("scratch", n): s.data_ptr() for n, s in enumerate(scratch)}
        rows: list[Arguments] = []
        for c in self.sets:
            ins, out = {
                "scores": ((self.index, c.blocks), c.scores),
                "topk": ((c.scores, self.at), c.ids),
                "attention": ((self.q, c.k, c.v, c.ids, self.at), c.out),
                "dense": ((self.q, c.k, c.v, self.length), c.dense),
            }[name]
            at = {("in", n): x.data_ptr() for n, x in enumerate(ins)}
            rows.append(made.arguments({**at, ("out", 0): out.data_ptr(), **words}))
        return rows

    # Right first

    def check(self, name: str) -> float:
        """The largest error of a launch's results, over a few rows of the first set."""
        c = self.sets[0]
        rows = sorted({0, self.batch - 1})
        worst = 0.0
        for b in rows:
            if name == "scores":
                s = torch.relu(c.blocks[b].double() @ self.index[b, :, 0].double().T).sum(1)
                want, got = s * INDEX_WIDTH**-0.5, c.scores[b, 0, 0].double()
                worst = max(worst, float((got - want).abs().max()))
            elif name == "topk":
                s = c.scores[b, 0, 0, : (KEYS - 1) // RATIO]
                want = torch.sort(s, descending=True, stable=True).indices[:SELECTED].sort().values
                worst = max(worst, float((want != c.ids[b, 0, 0]).sum()))
            else:
                at = torch.arange(KEYS - 1, device="cuda")
                if name == "attention":
                    own = c.ids[b, 0, 0].long()[:, None] * RATIO
                    own = (own + torch.arange(RATIO, device="cuda")).reshape(-1)
                    at = torch.cat([own, at[(KEYS - 1) // RATIO * RATIO :]])
                got = (c.out if name == "attention" else c.dense)[b, :, 0].double()
                for g in range(KV):
                    part = slice(g * HEADS // KV, (g + 1) * HEADS // KV)
                    k, v = (x[b, g, at].double() for x in (c.k, c.v))
                    w = torch.softmax(self.q[b, part, 0].double() @ k.T * SCALE, -1)
                    worst = max(worst, float((w @ v - got[part]).abs().max()))
        return worst

    # Then fast

    def graph(
        self, rows: list[tuple[Launcher, list[Arguments]]], *, early: bool = True
    ) -> torch.cuda.CUDAGraph:
        """The launches over each set in turn."""
        made = torch.cuda.CUDAGraph()
        stream = torch.cuda.Stream()
        torch.cuda.synchronize()
        with torch.cuda.graph(made, stream=stream):
            for n in range(len(self.sets)):
                for i, (launcher, arguments) in enumerate(rows):
                    overlap = launcher.built.call.attributes.overlap and early and (n + i > 0)
                    launcher.run(arguments[n], stream.cuda_stream, overlap=overlap)
        return made

    def times(self, graphs: dict[str, torch.cuda.CUDAGraph]) -> dict[str, list[float]]:
        """Microseconds a set, graphs in turn."""
        found: dict[str, list[float]] = {name: [] for name in graphs}
        for n in range(ROUNDS + 2):
            for name, graph in graphs.items():
                start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
                graph.replay()
                start.record()
                for _ in range(REPLAYS):
                    graph.replay()
                end.record()
                end.synchronize()
                if n > 1:
                    us = 1e3 * start.elapsed_time(end) / (REPLAYS * len(self.sets))
                    found[name].append(us)
        return found


def _scheduled(name: str, **params: int) -> Change:
    def change(found: Choice) -> Choice:
        merged = {**dict(found.schedule.params), **params}
        return replace(found, schedule=Schedule(name, tuple(sorted(merged.items()))))

    return change


def _grouped(limits: DeviceLimits, batch: int, numbers: tuple | None, parts: int) -> Change:
    body = canonical_body(parse(texts(batch)["attention"]))

    def change(found: Choice) -> Choice:
        other = choose_grouped(body, limits, numbers, parts)
        if isinstance(other, str):
            raise ValueError(other)
        return other

    return change


def variants(batch: int, limits: DeviceLimits) -> list[tuple[str, str, Change | None]]:
    """(launch, tag, what is changed)."""
    units = limits.compute_units
    rows: list[tuple[str, str, Change | None]] = []
    for turns, residents in ((1, 2), (1, 3), (1, 4), (2, 3)):
        steps = batch * -(-BLOCKS // (16 * turns))
        groups = min(units * residents, -(-steps // 8))
        change = _scheduled("block_scores", turns=turns, residents=residents, groups=groups)
        rows.append(("scores", f" turns {turns} x{residents}", change))
    rows.append(("topk", " no parts", _scheduled("held_topk", parts=0)))
    rows.append(("attention", " 4_1_2_16", _grouped(limits, batch, (4, 1, 2, 16), 16)))
    return rows


def measure(batch: int, limits: DeviceLimits, folder: Path, *, more: bool) -> dict[str, object]:
    """Every launch of a batch: right, then timed alone and in a row."""
    bench = Bench(batch, limits, folder)
    rows: dict[str, dict[str, object]] = {}
    graphs: dict[str, torch.cuda.CUDAGraph] = {}
    chain: list[tuple[Launcher, list[Arguments]]] = []
    stream = torch.cuda.current_stream().cuda_stream
    asked: list[tuple[str, str, Change | None]] = [
        (n, "", None) for n in ("scores", "topk", "attention", "dense")
    ]
    asked += variants(batch, limits) if more else []
    with ThreadPoolExecutor(16) as pool:
        kernels = list(pool.map(lambda row: bench.build(*row), asked))
    for (name, tag, _), kernel in zip(asked, kernels, strict=True):
        row: dict[str, object] = {}
        rows[name + tag] = row
        if isinstance(kernel, str):
            row["failed"] = kernel
            continue
        built, facts, choice = kernel
        made = Launcher(built, folder)
        arguments = bench.arguments(name, made, choice)
        for _ in range(2):
            for each in arguments:
                made.run(each, stream)
        torch.cuda.synchronize()
        row |= {**facts, "error": bench.check(name), "why": choice.reason,
                "grid": made.built.call.grid}  # fmt: skip
        graphs[name + tag] = bench.graph([(made, arguments)])
        if not tag and name != "dense":
            chain.append((made, arguments))
    if len(chain) == 3:
        rows["chain"], rows["chain, one by one"] = {}, {}
        graphs["chain"] = bench.graph(chain)
        graphs["chain, one by one"] = bench.graph(chain, early=False)
    for name, times in bench.times(graphs).items():
        us = statistics.median(times)
        plain = name.split(" ")[0].rstrip(",")
        rows[name] |= {
            "us": us, "best": min(times), "worst": max(times),
            "GB/s": nbytes(plain, batch) / us / 1e3,
        }  # fmt: skip
    return {"sets": len(bench.sets), "rows": rows}


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batch", type=int, nargs="*", default=[1, 8, 32])
    parser.add_argument("--variants", action="store_true")
    parser.add_argument("--out", type=Path, default=Path(os.environ.get("OUT", "build")))
    options = parser.parse_args(argv)
    limits = limits_of(torch.cuda.get_device_properties(0).multi_processor_count)
    record: dict[str, object] = {
        "machine": torch.cuda.get_device_name(0), "date": time.strftime("%Y-%m-%d"),
        "command": "python -m benchmarks.selected_card " + " ".join(argv or sys.argv[1:]),
    }  # fmt: skip
    options.out.mkdir(parents=True, exist_ok=True)
    path = options.out / f"selected-card-{record['date']}.json"
    with tempfile.TemporaryDirectory() as folder:
        for batch in options.batch:
            begin = time.perf_counter()
            found = measure(batch, limits, Path(folder), more=options.variants)
            record[f"batch {batch}"] = found
            save(path, record)
            print(f"batch {batch}, {found['sets']} sets, {time.perf_counter() - begin:.0f} s")
            rows = found["rows"]
            assert isinstance(rows, dict)
            for name, row in rows.items():
                shown = row.get("failed") or (
                    f"{row.get('us', 0):8.1f} us (best {row.get('best', 0):7.1f}) "
                    f"{row.get('GB/s', 0):7.0f} GB/s  error {row.get('error')} "
                    f"registers {row.get('registers')} spills {row.get('spills')}"
                )
                print(f"  {name:26} {shown}", flush=True)
            torch.cuda.empty_cache()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
