"""Products of many rows on one NVIDIA card, as the compiled model launches them, norm apart and
epilogue after; beside them cuBLAS on the bare product in bf16 and in f32.

    python -m benchmarks.gemm --out build/gemm [--only WORD ..] [--rounds 7] [--variants]

First every row is compared with the portable schedule's result, a bare product also with f64 (and
cuBLAS's with it). Weights rotate past L2; times are of graph replays, each launch overlapping the
one before. Writes gemm.json; a table comes last. TFLOP/s count each product once, whatever parts it
is made of.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from benchmarks.card_kernels import Built, Launcher, assemble, limits_of
from benchmarks.gemv import FOLDER, TORCH, Bench, Named, Row, form_row, replayed, timed
from benchmarks.isolated import machine
from benchmarks.llama_shapes import SHAPES, decode_graph
from benchmarks.record import save
from poot.api import compile
from poot.codegen.gen.lower import lower
from poot.codegen.ptx.emit import emit_ptx
from poot.ir.text import parse
from poot.limits import DeviceLimits
from poot.planner.request import Choice, Request, Schedule
from poot.planner.schedules import choose
from poot.planner.steps import canonical_body

BARE = [
    (rows, cols, depth)
    for rows in (16, 64, 512, 4096)
    for cols, depth in ((4096, 4096), (14336, 4096), (4096, 14336))
]
PREFILL, FEW = (512, 2048, 4096), (16, 32, 64)
CODES = [("q4_1", 64), ("q4_1", 512), ("q8_0", 64), ("q8_0", 512), ("int8", 512), ("f32", 512)]
WITHIN = {"f32": 1e-4, "bf16": 1.6e-2, "f16": 2e-3}
LAUNCHES = 8


@dataclass(frozen=True, slots=True)
class Work:
    """A row of the table: a step, its size, and whether it is the bare product of two inputs."""

    name: str
    row: Row
    rows: int
    is_bare: bool = False

    @property
    def flops(self) -> int:
        return 2 * self.rows * self.row.columns * self.row.depth


def bare_text(rows: int, cols: int, depth: int, x: str, weight: str) -> str:
    """x [rows, depth] times weights [cols, depth]."""
    wide = f"v3: {x}[{depth},{cols}] = cast(v2) dtype={x}" if x != weight else ""
    return f"""in v0: {x}[{rows},{depth}]
               weight v1: {weight}[{cols},{depth}] "w"
               v2: {weight}[{depth},{cols}] = transpose(v1) perm=(1, 0)
               {wide}
               v4: {x}[{rows},{cols}] = matmul(v0, {"v3" if wide else "v2"})
               out v4"""


def request_of(text: str, limits: DeviceLimits) -> Request:
    body = canonical_body(parse(text), (1,))
    found = choose(body, "matmul", (), limits)
    return Request(body, "matmul", (), found.layouts, found.schedule, found.scratch)


def works(limits: DeviceLimits) -> list[Work]:
    """Every row of the table."""
    out: list[Work] = []
    for rows, cols, depth in BARE:
        for x in ("bf16", "f32"):
            made = request_of(bare_text(rows, cols, depth, x, "bf16"), limits)
            name = f"{x} {rows} x {depth} x {cols}"
            out.append(Work(name, Row(name, made, cols, depth), rows, True))
    for kind, rows in CODES:
        row = form_row(kind, rows, limits)
        out.append(Work(row.name, row, rows))
    for rows in (*FEW, *PREFILL):
        graph = decode_graph(SHAPES["llama-8b"], 4608, 2, rows=rows)
        seen = set[Request]()
        for step in compile({"prefill": graph}, limits, cache=False).plan.entries[0].steps:
            request = step.request
            if not request.schedule.name.startswith("matrix") or request in seen:
                continue
            seen.add(request)
            eqns = [e for e in request.body.eqns if e.op == "matmul"]
            columns, depth = sum(e.out.type.shape[-1] for e in eqns), eqns[0].ins[0].type.shape[-1]
            name = f"llama-8b {rows} rows {columns} x {depth} {len(out)}"
            out.append(Work(name, Row(name, request, columns, depth), rows))
    return out


@dataclass(frozen=True, slots=True)
class Chain:
    """A step's launches."""

    request: Request
    built: tuple[Built, ...]

    @staticmethod
    def of(name: str, tag: str, request: Request, limits: DeviceLimits) -> Chain:
        built = tuple(
            Built(Named(f"{name}-{tag}-{n}"), call, emit_ptx(call.kernel, limits)[1], tag, 0)
            for n, call in enumerate(lower(request, limits).calls)
        )
        return Chain(request, built)


def portable(request: Request, limits: DeviceLimits) -> Request:
    """The same step without matrix units."""
    plain = replace(limits, has_matrix_units=False)
    found: Choice = choose(request.body, "matmul", request.updates, plain)
    return replace(request, schedule=found.schedule, scratch=found.scratch)


def variants(request: Request) -> dict[str, Request]:
    """Other tiles and rings than the chosen ones, where they can be had."""
    given = dict(request.schedule.params)
    if request.schedule.name != "matrix_ring":
        return {}
    changes = [{"section": n} for n in (1, 2, 4, 8) if given["section"] % n == 0 and not
               given["swapped"]]  # fmt: skip
    changes += [{"stages": n} for n in (2, 3, 4) if n < given["stages"]]
    if not given["swapped"] and given["tile_n"] > 128:
        changes.append({"tile_n": 128})
    out: dict[str, Request] = {}
    for change in changes:
        params = given | change
        if params != given:
            tag = "-".join(f"{k}{v}" for k, v in change.items())
            schedule = Schedule("matrix_ring", tuple(sorted(params.items())))
            out[tag] = replace(request, schedule=schedule)
    return out


class Tensors(Bench):
    """A row's tensors, with those of its scratch."""

    def pointers_of(self, at: int, request: Request) -> dict[tuple[str, int], int]:
        if not hasattr(self, "scratch"):
            self.scratch: dict[tuple[int, str, int], torch.Tensor] = {}
        found = self.pointers(at)
        for n, s in enumerate(request.scratch):
            key = (n, s.dtype, s.elems)
            if key not in self.scratch:
                self.scratch[key] = torch.empty(s.elems, device="cuda", dtype=TORCH[s.dtype])
            found["scratch", n] = self.scratch[key].data_ptr()
        return found


def apart(got: list[torch.Tensor], want: list[torch.Tensor]) -> float:
    """The largest difference of any output, of its largest number."""
    return max(
        float((a.double() - b.double()).abs().max() / b.double().abs().max().clamp(min=1e-9))
        for a, b in zip(got, want, strict=True)
        if a.is_floating_point()
    )


def exactness(work: Work, bench: Tensors, got: torch.Tensor) -> dict[str, float]:
    """Errors by norm against f64, of the first 256 rows: this product's and cuBLAS's."""
    x, w = bench.fixed["in", 0][:256], bench.weights[0]["in", 1]
    want = x.double() @ w.double().t()

    def error(found: torch.Tensor) -> float:
        return float((found.double() - want).norm() / want.norm())

    return {
        "poot": error(got[:256]), "cublas-f32": error(x.float() @ w.float().t()),
        "cublas-bf16": error(x.bfloat16() @ w.bfloat16().t()),
    }  # fmt: skip


def peers(work: Work, bench: Tensors) -> dict[str, Callable[[int], None]]:
    """cuBLAS on the bare product: of bf16, and where poot's is of f32 of f32."""
    made = {"device": "cuda"}
    x = torch.randn(work.rows, work.row.depth, **made)
    shape = (work.row.columns, work.row.depth)
    w = [torch.randn(shape, **made).bfloat16() for _ in range(bench.sets)]
    short, y = x.bfloat16(), torch.empty(work.rows, work.row.columns, **made).bfloat16()
    found = {"cublas-bf16": lambda n: torch.mm(short, w[n].t(), out=y)}
    if work.rows >= 512:
        wide, z = w[0].float(), torch.empty(work.rows, work.row.columns, **made)
        found["cublas-f32"] = lambda n: torch.mm(x, wide.t(), out=z)
    return found


def run(
    work: Work, chains: dict[str, Chain], facts: dict[str, object], rounds: int
) -> dict[str, object]:
    """A row's report: what is wrong first, then times."""
    bench = Tensors(work.row)
    launchers = {tag: [Launcher(b, FOLDER) for b in chain.built] for tag, chain in chains.items()}

    def starter(tag: str) -> Callable[[int], None]:
        request = chains[tag].request
        made = [
            [one.arguments(bench.pointers_of(n, request)) for one in launchers[tag]]
            for n in range(bench.sets)
        ]

        def launch(n: int) -> None:
            stream = torch.cuda.current_stream().cuda_stream
            for one, arguments in zip(launchers[tag], made[n], strict=True):
                one.run(arguments, stream, overlap=one.built.call.attributes.overlap)

        return launch

    launches = {tag: starter(tag) for tag in chains}
    results: dict[str, list[torch.Tensor]] = {}
    for tag, launch in launches.items():
        for out in bench.outs.values():
            out.fill_(0)
        launch(0)
        torch.cuda.synchronize()
        results[tag] = [out.clone() for out in bench.outs.values()]
    want = results.pop("portable")
    dtype = work.row.request.body.outputs[0].type.dtype
    errors = {tag: apart(got, want) for tag, got in results.items()}
    wrong = {tag: e for tag, e in errors.items() if not e < WITHIN[dtype]}
    found = exactness(work, bench, results["chosen"][0]) if work.is_bare else {}
    replays = {tag: replayed(launches[tag], bench.sets, LAUNCHES) for tag in results}
    replays |= {
        tag: replayed(call, bench.sets, LAUNCHES) for tag, call in peers(work, bench).items()
    }
    times = timed(replays, bench.sets, rounds, LAUNCHES)
    middle = {tag: statistics.median(t) for tag, t in times.items()}
    return {
        "row": work.name, "flops": work.flops, "nbytes": work.row.nbytes, "errors": errors,
        "wrong": wrong, "by_norm": found, "us": middle,
        "spread": {tag: [min(t), max(t)] for tag, t in times.items()},
        "tflop_s": {tag: work.flops / us / 1e6 for tag, us in middle.items()},
        "schedule": dict(work.row.request.schedule.params), "kernels": facts,
    }  # fmt: skip


def line(report: dict[str, object]) -> str:
    us, rate = report["us"], report["tflop_s"]
    assert isinstance(us, dict)
    assert isinstance(rate, dict)
    said = "  ".join(f"{tag} {us[tag]:.1f} us {rate[tag]:.0f}" for tag in us)
    state = f"WRONG {report['wrong']}" if report["wrong"] else "right"
    return f"{report['row']:<38} {state}  {said}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path(os.environ.get("OUT", "build/gemm")))
    parser.add_argument("--only", nargs="+", default=[])
    parser.add_argument("--variants", action="store_true")
    parser.add_argument("--rounds", type=int, default=7)
    given = parser.parse_args()
    torch.backends.cuda.matmul.allow_tf32 = False
    for folder in (given.out, FOLDER):
        folder.mkdir(parents=True, exist_ok=True)
    limits = limits_of(torch.cuda.get_device_properties(0).multi_processor_count)
    begun = time.time()
    chosen = [w for w in works(limits) if not given.only or any(o in w.name for o in given.only)]
    chains: dict[str, dict[str, Chain]] = {}
    for work in chosen:
        request = work.row.request
        wanted = {"chosen": request, "portable": portable(request, limits)}
        wanted |= variants(request) if given.variants else {}
        chains[work.name] = {t: Chain.of(work.name, t, r, limits) for t, r in wanted.items()}
    jobs = [(w, t, b) for w, c in chains.items() for t, chain in c.items() for b in chain.built]
    with ThreadPoolExecutor(16) as pool:
        facts = list(pool.map(lambda job: assemble(job[2], FOLDER), jobs))
    print(f"{len(jobs)} kernels in {time.time() - begun:.0f} s", flush=True)
    rows: dict[str, object] = {}
    result = {**machine("benchmarks.gemm"), "rows": rows}
    for work in chosen:
        own = {f"{t} {b.call.kernel.name}": f for (w, t, b), f in zip(jobs, facts, strict=True)
               if w == work.name}  # fmt: skip
        report = run(work, chains[work.name], own, given.rounds)
        rows[work.name] = report
        save(given.out / "gemm.json", result)
        torch.cuda.empty_cache()
        print(line(report), report["by_norm"], flush=True)
    print(f"{time.time() - begun:.0f} s in all\n")
    for report in rows.values():
        assert isinstance(report, dict)
        print(line(report))


if __name__ == "__main__":
    main()
