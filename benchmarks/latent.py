"""Decode over latent rows on a card (multi-head latent attention with absorbed queries: keys of 576
channels, values the first 512 of them): poot's two launches over PyTorch's tensors, replayed as
CUDA graphs over several caches, so that each call finds a cold one.

    python -m benchmarks.latent --out benchmarks/results [--seconds 35]

Each row is compared with f64 first. Peers: FlashInfer's MLA decode (its module compiled before, in
FLASHINFER_WORKSPACE_BASE), and PyTorch's two products with a softmax between. Writes
latent-<date>.json; a table comes last. Bytes are the latent rows', once each.
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
from dataclasses import dataclass
from pathlib import Path

import torch

from benchmarks.card_kernels import Built, Launcher, assemble, limits_of
from benchmarks.record import save
from poot.codegen.gen.lower import lower
from poot.codegen.ptx.emit import emit_ptx
from poot.ir.text import parse
from poot.limits import DeviceLimits
from poot.planner.request import Choice, Request
from poot.planner.schedules import choose
from poot.planner.steps import canonical_body

WIDTH, VALUES, PAGE = 576, 512, 64
SCALE = 192**-0.5
COLD_NBYTES, CALLS, TIMES = 200_000_000, 8, 9
WITHIN = 4e-3  # by norm; an output's own rounding is 1.6e-3
FAILURES = (ImportError, RuntimeError, ValueError, TypeError, OSError, AttributeError)


@dataclass(frozen=True, slots=True)
class Row:
    """Lengths of the batch, and query heads."""

    batch: int
    heads: int
    length: int
    is_paged: bool

    @property
    def name(self) -> str:
        return f"B{self.batch} H{self.heads} L{self.length}{' paged' * self.is_paged}"

    @property
    def nbytes(self) -> int:
        return self.batch * self.length * WIDTH * 2

    @property
    def flops(self) -> int:
        return 2 * self.batch * self.heads * self.length * (WIDTH + VALUES)

    @property
    def pool(self) -> int:
        return self.batch * self.length + PAGE

    def text(self) -> str:
        """The graph: rows of a cache, or of a pool by a map; the values are a slice of them."""
        b, n, w = self.batch, self.length, WIDTH
        held = f"bf16[{self.pool},1,{w}]" if self.is_paged else f"bf16[{b},1,{n},{w}]"
        lines = [f"in v0: bf16[{b},{self.heads},1,{w}]", f"in v1: {held}", f"in v2: i32[{b}]"]
        rows = 1
        if self.is_paged:
            lines += [
                f"in v3: i32[{b},{n}]",
                f"v4: bf16[{b},{n},1,{w}] = gather(v1, v3) axis=0",
                f"v5: bf16[{b},1,{n},{w}] = reshape(v4) shape=({b}, 1, {n}, {w})",
            ]
            rows = 5
        cut = f"start=(0, 0, 0, 0) step=(1, 1, 1, 1) stop=({b}, 1, {n}, {VALUES})"
        return "\n".join([
            *lines, f"v6: bf16[{b},1,{n},{VALUES}] = slice(v{rows}) {cut}",
            f"v7: bf16[{b},{self.heads},1,{VALUES}] = attention(v0, v{rows}, v6, v2) "
            f"operands=(q, k, v, len) scale={SCALE}", "out v7",
        ])  # fmt: skip


ROWS: tuple[Row, ...] = tuple(
    Row(batch, heads, length, is_paged)
    for batch, heads, length in (
        (1, 128, 4096), (1, 128, 32768), (8, 128, 4096), (32, 128, 4096), (64, 128, 4096),
        (128, 128, 4096), (1, 16, 32768), (32, 16, 4096), (128, 16, 4096),
    )
    for is_paged in (False, True)
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Named:
    """What `card_kernels` asks of a row."""

    name: str
    schedule: str = "latent"
    numbers: None = None

    def text(self) -> str:
        return ""


class Bench:
    """One row: its tensors and its launches."""

    def __init__(self, row: Row, limits: DeviceLimits, folder: Path) -> None:
        self.row, self.folder = row, folder
        body = canonical_body(parse(row.text()))
        found = choose(body, "attention", (), limits)
        assert isinstance(found, Choice), found
        assert found.schedule.name == "latent", found
        self.choice = found
        request = Request(body, "attention", (), found.layouts, found.schedule, found.scratch)
        self.built = [
            Built(Named(f"{row.name} {n}"), call, emit_ptx(call.kernel, limits)[1], found.reason, 0)
            for n, call in enumerate(lower(request, limits).calls)
        ]
        self.facts = [assemble(built, folder) for built in self.built]

    def load(self) -> None:
        """Tensors and kernels on the card; entries of the pool that no map names are NaN."""
        row, made = self.row, {"device": "cuda", "dtype": torch.bfloat16}
        count = max(2, -(-COLD_NBYTES // row.nbytes))
        count = min(count, 12)
        self.q = torch.randn(row.batch, row.heads, 1, WIDTH, **made)
        self.length = torch.full((row.batch,), row.length, device="cuda", dtype=torch.int32)
        pages = (row.pool // PAGE) - 1
        order = torch.randperm(pages, device="cuda", dtype=torch.int32) + 1
        self.pages = order.view(row.batch, -1)
        inside = torch.arange(PAGE, device="cuda", dtype=torch.int32)
        self.map = (self.pages[:, :, None] * PAGE + inside).reshape(row.batch, row.length)
        shape = (row.pool, 1, WIDTH) if row.is_paged else (row.batch, 1, row.length, WIDTH)
        self.caches = [torch.randn(*shape, **made) for _ in range(count)]
        for cache in self.caches if row.is_paged else ():
            cache[:PAGE] = float("nan")
        self.out = torch.empty(row.batch, row.heads, 1, VALUES, **made)
        self.scratch = [torch.empty(s.elems, device="cuda") for s in self.choice.scratch]
        self.launchers = [Launcher(built, self.folder) for built in self.built]
        self.arguments = [[launcher.arguments(self._pointers(cache)) for launcher in self.launchers]
                          for cache in self.caches]  # fmt: skip

    def _pointers(self, cache: torch.Tensor) -> dict[tuple[str, int], int]:
        ins = (self.q, cache, self.length, self.map)
        return {
            **{("in", n): x.data_ptr() for n, x in enumerate(ins)}, ("out", 0): self.out.data_ptr(),
            **{("scratch", n): s.data_ptr() for n, s in enumerate(self.scratch)},
        }  # fmt: skip

    def call(self, n: int) -> None:
        stream = torch.cuda.current_stream().cuda_stream
        for launcher, arguments in zip(self.launchers, self.arguments[n], strict=True):
            launcher.run(arguments, stream)

    def states(self, n: int) -> None:
        """The first launch alone."""
        stream = torch.cuda.current_stream().cuda_stream
        self.launchers[0].run(self.arguments[n][0], stream)

    def rows_of(self, n: int, b: int) -> torch.Tensor:
        """Batch row b's latent rows of a cache."""
        cache = self.caches[n]
        return cache[self.map[b].long(), 0] if self.row.is_paged else cache[b, 0]

    def error(self, got: torch.Tensor) -> float:
        """The largest error by norm of the first and the last batch row, of cache 0."""
        worst = 0.0
        for b in sorted({0, self.row.batch - 1}):
            rows = self.rows_of(0, b).double()
            weights = torch.softmax(self.q[b, :, 0].double() @ rows.T * SCALE, -1)
            want = weights @ rows[:, :VALUES]
            worst = max(worst, float((got[b].double() - want).norm() / want.norm()))
        return worst

    # Peers

    def products(self) -> Callable[[int], torch.Tensor]:
        """Two batched products with a softmax between, over dense rows."""
        if self.row.is_paged:
            raise ValueError("over dense rows alone")

        def call(n: int) -> torch.Tensor:
            rows = self.caches[n][:, 0]
            scores = torch.bmm(self.q[:, :, 0], rows.transpose(1, 2)) * SCALE
            weights = torch.softmax(scores, -1, dtype=torch.float32).to(scores.dtype)
            return torch.bmm(weights, rows[:, :, :VALUES])

        return call

    def flashinfer(self) -> Callable[[int], torch.Tensor]:
        """FlashInfer's MLA decode over pages of 64, planned once."""
        if not self.row.is_paged:
            raise ValueError("over pages alone")
        import flashinfer

        row = self.row
        space = torch.empty(256 << 20, dtype=torch.uint8, device="cuda")
        wrapper = flashinfer.mla.BatchMLAPagedAttentionWrapper(space, backend="fa3")
        i32 = {"device": "cuda", "dtype": torch.int32}
        each = row.length // PAGE
        wrapper.plan(
            torch.arange(row.batch + 1, **i32), torch.arange(row.batch + 1, **i32) * each,
            self.pages.reshape(-1).contiguous(), self.length, row.heads, VALUES, WIDTH - VALUES,
            PAGE, False, SCALE, torch.bfloat16, torch.bfloat16,
        )  # fmt: skip
        q = self.q[:, :, 0]
        own, turned = q[..., :VALUES].contiguous(), q[..., VALUES:].contiguous()
        pools = [c.view(-1, PAGE, WIDTH) for c in self.caches]
        caches = [(p[..., :VALUES].contiguous(), p[..., VALUES:].contiguous()) for p in pools]
        return lambda n: wrapper.run(own, turned, *caches[n])

    # Times

    def graph(self, call: Callable[[int], object]) -> torch.cuda.CUDAGraph:
        made, stream = torch.cuda.CUDAGraph(), torch.cuda.Stream()
        torch.cuda.synchronize()
        with torch.cuda.graph(made, stream=stream):
            for n in range(CALLS):
                call(n % len(self.caches))
        return made


def times(graphs: dict[str, torch.cuda.CUDAGraph]) -> dict[str, list[float]]:
    """Microseconds a call, graphs in turn."""
    found: dict[str, list[float]] = {name: [] for name in graphs}
    for n in range(TIMES + 1):
        for name, graph in graphs.items():
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record()
            graph.replay()
            end.record()
            end.synchronize()
            if n:
                found[name].append(1e3 * start.elapsed_time(end) / CALLS)
    return found


def measure(bench: Bench) -> dict[str, object]:
    """A row: right first, then poot and its peers in turn."""
    bench.load()
    row = bench.row
    bench.call(0)
    torch.cuda.synchronize()
    first = bench.out.clone()
    found: dict[str, object] = {
        "why": bench.choice.reason, "kernels": bench.facts, "error": bench.error(bench.out[:, :, 0])
    }  # fmt: skip
    bench.call(0)
    torch.cuda.synchronize()
    found["same bits"] = bool(torch.equal(first, bench.out))
    graphs = {"poot": bench.graph(bench.call), "states": bench.graph(bench.states)}
    for name, make in (("products", bench.products), ("flashinfer", bench.flashinfer)):
        try:
            call = make()
            for n in range(2):
                got = call(n % len(bench.caches))
            found[f"{name} error"] = bench.error(call(0))
            del got
            graphs[name] = bench.graph(call)
        except FAILURES as e:  # the peer's result
            found[f"{name} failed"] = f"{type(e).__name__}: {e}"[:200]
    for name, taken in times(graphs).items():
        us = statistics.median(taken)
        found[name] = {"us": us, "best": min(taken), "worst": max(taken),
                       "TB/s": row.nbytes / us / 1e6, "TFLOP/s": row.flops / us / 1e6}  # fmt: skip
    return found


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path(os.environ.get("OUT", "build")))
    parser.add_argument("--seconds", type=float, default=300)
    options = parser.parse_args(argv)
    end = time.time() + options.seconds
    limits = limits_of(torch.cuda.get_device_properties(0).multi_processor_count)
    record: dict[str, object] = {
        "machine": torch.cuda.get_device_name(0), "date": time.strftime("%Y-%m-%d"),
        "command": "python -m benchmarks.latent " + " ".join(argv or sys.argv[1:]),
    }  # fmt: skip
    options.out.mkdir(parents=True, exist_ok=True)
    path = options.out / f"latent-{record['date']}.json"
    rows: dict[str, dict[str, object]] = {}
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(16) as pool:
        for bench in pool.map(lambda row: Bench(row, limits, Path(folder)), ROWS):
            if time.time() > end:
                break
            rows[bench.row.name] = measure(bench)
            save(path, {**record, "rows": rows})
            print(_line(bench.row.name, rows[bench.row.name]), flush=True)
    wrong = [n for n, r in rows.items() if not float(str(r["error"])) < WITHIN]
    print("wrong:", wrong or "none")
    return 1 if wrong or not rows else 0


def _line(name: str, row: dict[str, object]) -> str:
    """A row of the table."""
    words = [f"{name:24}", f"error {row['error']:.1e}", "same" if row["same bits"] else "DIFFERS"]
    for peer in ("poot", "states", "products", "flashinfer"):
        found = row.get(peer)
        if isinstance(found, dict):
            rates = f"{found['TB/s']:.2f} TB/s {found['TFLOP/s']:.0f} TFLOP/s"
            words.append(f"{peer} {found['us']:.1f} us {rates}")
        elif f"{peer} failed" in row:
            words.append(f"[{peer}: {row[f'{peer} failed']}]")
    return "  ".join(words)


if __name__ == "__main__":
    sys.exit(main())
