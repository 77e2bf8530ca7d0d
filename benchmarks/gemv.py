"""The products of a batch-1 decode on one NVIDIA card, each as the compiled model launches it, with
its norm before and its epilogue after; beside them cuBLAS on the bare product.

    python -m benchmarks.gemv --out build/gemv [--model llama-8b] [--variants]

Results are compared with those of the portable schedule first. Weights rotate past L2; times are of
graph replays of 24 launches or more, each overlapping the one before.
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

import numpy as np
import torch

from benchmarks.card_kernels import Built, Launcher, assemble, limits_of
from benchmarks.isolated import machine
from benchmarks.llama_shapes import SHAPES, decode_graph
from benchmarks.record import save
from poot import ops
from poot.api import compile
from poot.codegen.gen.lower import lower
from poot.codegen.ptx.emit import emit_ptx
from poot.ir.dtypes import DTYPES
from poot.ir.graph import TensorType, Weight
from poot.limits import DeviceLimits
from poot.ops.array import Array
from poot.oracle import run
from poot.planner.request import Request, Schedule
from poot.trace import Spec, slot, trace, weight

FOLDER = Path("/tmp/poot-gemv")
LAUNCHES = 24
FORMS = "forms"
FORM_ROWS = [
    ("bf16", 1), ("bf16", 2), ("bf16", 4), ("bf16", 8), ("f32", 1), ("f16", 1), ("q4_1", 1),
    ("q8_0", 1), ("int8", 1), ("q4_1", 4),
]  # fmt: skip
TORCH = {
    "f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16, "i32": torch.int32,
    "u32": torch.int32, "bool": torch.int32,
}  # fmt: skip
PORTABLE = Schedule(
    "gemv", (("adjacent", 1), ("cols", 1), ("lanes", 32), ("rows", 1), ("threads", 128),
             ("unroll", 8)),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Named:
    """A kernel's name, as `card_kernels` wants it."""

    name: str
    schedule: str = ""
    numbers: None = None

    def text(self) -> str:
        return ""


@dataclass(frozen=True, slots=True)
class Row:
    """One step: its request, and the sizes of its product, all columns together."""

    name: str
    request: Request
    columns: int
    depth: int

    @property
    def nbytes(self) -> int:
        return sum(
            i.var.type.nbytes for i in self.request.body.inputs if self.is_matrix(i.var.type)
        )

    @staticmethod
    def is_matrix(type: TensorType) -> bool:
        return len(type.shape) == 2 and min(type.shape) > 1 and type.elems > 1 << 16


def rows_of(model: str, limits: DeviceLimits) -> list[Row]:
    """The products of one layer and of the head."""
    if model == FORMS:
        return [form_row(kind, rows, limits) for kind, rows in FORM_ROWS]
    program = compile({"decode": decode_graph(SHAPES[model], 1024, 1)}, limits, cache=False)
    out: dict[str, Row] = {}
    for step in program.plan.entries[0].steps:
        if step.request.anchor == "matmul":
            eqns = [e for e in step.request.body.eqns if e.op == "matmul"]
            columns = sum(e.out.type.shape[-1] for e in eqns)
            depth = eqns[0].ins[0].type.shape[-1]
            out.setdefault(f"{columns}x{depth}", Row(f"{columns}x{depth}", step.request, columns,
                                                     depth))  # fmt: skip
    return list(out.values())


def form_row(kind: str, rows: int, limits: DeviceLimits) -> Row:
    """The bare product of so many rows with weights of a kind, 14336 x 4096."""
    cols, depth = 14336, 4096

    def product(x: Array, *weights: Array) -> Array:
        match kind:
            case "q4_1":
                made = ops.dequant_q4_1(*weights)
            case "q8_0":
                made = ops.dequant_q8_0(*weights)
            case "int8":
                made = ops.dequant_int8(*weights)
            case _:
                made = weights[0].astype("f32")
        return ops.linear(x, made)

    scales = weight((cols, 1 if kind == "int8" else depth // 32), "f16")
    codes = weight((cols, depth // (8 if kind == "q4_1" else 4)), "u32")
    specs: tuple[Spec, ...] = (codes, scales)
    if kind == "q4_1":
        specs = (codes, scales, scales)
    elif kind not in ("q8_0", "int8"):
        specs = (weight((cols, depth), kind),)
    graph = trace(product, (slot((rows, depth), "f32"), *specs))
    (step,) = compile(graph, limits, cache=False).plan.entries[0].steps
    return Row(f"{kind} {rows} rows {cols}x{depth}", step.request, cols, depth)


def build(row: Row, tag: str, schedule: Schedule, limits: DeviceLimits) -> Built:
    request = replace(row.request, schedule=schedule)
    call = lower(request, limits).calls[0]
    return Built(Named(f"{row.name}-{tag}"), call, emit_ptx(call.kernel, limits)[1], tag, 0)


class Bench:
    """A row's tensors, `sets` of the weights."""

    def __init__(self, row: Row) -> None:
        self.row = row
        body = row.request.body
        self.sets = max(1, -(-300_000_000 // row.nbytes))
        generator = torch.Generator("cuda").manual_seed(1)
        self.fixed: dict[tuple[str, int], torch.Tensor] = {}
        self.weights: list[dict[tuple[str, int], torch.Tensor]] = [{} for _ in range(self.sets)]
        for n, i in enumerate(body.inputs):
            type = i.var.type
            kind = TORCH[type.dtype]
            many = isinstance(i.storage, Weight) and Row.is_matrix(type)
            for at in range(self.sets if many else 1):
                if kind.is_floating_point:
                    made = torch.randn(type.shape, device="cuda", generator=generator)
                    made = (made * (type.shape[-1] ** -0.5 if many else 1.0)).to(kind)
                elif many:
                    span = (-(1 << 31), (1 << 31) - 1)
                    made = torch.randint(*span, type.shape, device="cuda", dtype=kind)
                else:
                    filled = torch.ones if type.dtype == "bool" else torch.zeros
                    made = filled(type.shape, device="cuda", dtype=kind)
                (self.weights[at] if many else self.fixed)["in", n] = made
        self.outs = {
            ("out", n): torch.zeros(v.type.shape, device="cuda", dtype=TORCH[v.type.dtype])
            for n, v in enumerate(body.outputs)
        }

    def pointers(self, at: int) -> dict[tuple[str, int], int]:
        every = self.fixed | self.weights[at] | self.outs
        return {key: tensor.data_ptr() for key, tensor in every.items()}

    def results(self, launcher: Launcher) -> list[torch.Tensor]:
        for out in self.outs.values():
            out.zero_()
        launcher.run(launcher.arguments(self.pointers(0)), torch.cuda.current_stream().cuda_stream)
        torch.cuda.synchronize()
        return [out.clone() for out in self.outs.values()]

    def oracle(self) -> list[torch.Tensor]:
        """The step's outputs by the oracle; of an update in place, over zeros."""
        every = self.fixed | self.weights[0]
        feed: dict[str, np.ndarray] = {}
        for n, i in enumerate(self.row.request.body.inputs):
            tensor = every["in", n].cpu()
            if n in {at for _, at in self.row.request.updates}:
                tensor = torch.zeros_like(tensor)
            array = tensor.float().numpy() if tensor.is_floating_point() else tensor.numpy()
            feed[i.name] = array.astype(DTYPES[i.var.type.dtype].numpy)
        found = run(self.row.request.body, feed).outputs
        return [torch.from_numpy(x.astype(np.float32)).cuda() for x in found]

    def product(self) -> tuple[torch.Tensor, list[torch.Tensor]]:
        """The bare product's operands: x [1, depth] and the matrices as one, for each set."""
        x = torch.randn(1, self.row.depth, device="cuda").to(torch.bfloat16)
        if any(t.dtype != torch.bfloat16 for w in self.weights for t in w.values()):
            shape = (self.row.columns, self.row.depth)
            return x, [torch.randn(shape, device="cuda").to(x.dtype) for _ in self.weights]
        return x, [torch.cat(list(w.values())) for w in self.weights]


def replayed(
    launch: Callable[[int], None], sets: int, launches: int = LAUNCHES
) -> Callable[[], None]:
    """A graph of so many launches or more, whole turns of the sets."""
    count = sets * -(-launches // sets)
    stream = torch.cuda.Stream()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.stream(stream):
        launch(0)
        torch.cuda.synchronize()
        with torch.cuda.graph(graph, stream=stream):
            for n in range(count):
                launch(n % sets)
    return graph.replay


def timed(
    replays: dict[str, Callable[[], None]], sets: int, rounds: int, launches: int = LAUNCHES
) -> dict[str, list[float]]:
    """Microseconds a launch of graphs that `replayed` made, each round all in turn."""
    count = sets * -(-launches // sets)
    out: dict[str, list[float]] = {name: [] for name in replays}
    for replay in replays.values():
        replay()
    for _ in range(rounds):
        for name, replay in replays.items():
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record()
            replay()
            end.record()
            end.synchronize()
            out[name].append(1e3 * start.elapsed_time(end) / count)
    return out


def variants(schedule: Schedule, many: bool) -> dict[str, Schedule]:
    if not many:
        return {"chosen": schedule}
    out = {"chosen": schedule}
    given = dict(schedule.params)
    for warps, depth, residents in [(16, 8, 2), (8, 16, 2), (32, 4, 1), (12, 20, 1)]:
        changed = given | {"warps": warps, "depth": depth, "residents": residents}
        out[f"w{warps}d{depth}r{residents}"] = Schedule("stream", tuple(sorted(changed.items())))
    return out


def run_row(row: Row, built: dict[str, Built], rounds: int) -> dict[str, object]:
    bench = Bench(row)
    launchers = {tag: Launcher(b, FOLDER) for tag, b in built.items()}
    portable = launchers.pop("portable", None)
    want = bench.oracle() if portable is None else bench.results(portable)
    wrong: dict[str, float] = {}
    replays: dict[str, Callable[[], None]] = {}
    for tag, launcher in launchers.items():
        got = bench.results(launcher)
        worst = max(
            float((a.double() - b.double()).abs().max() / b.double().abs().max().clamp(min=1e-9))
            for a, b in zip(got, want, strict=True)
            if a.is_floating_point()
        )
        if not worst < 1e-4:
            wrong[tag] = worst
        made = [launcher.arguments(bench.pointers(n)) for n in range(bench.sets)]

        def launch(n: int, launcher: Launcher = launcher, made: list = made) -> None:
            launcher.run(made[n], torch.cuda.current_stream().cuda_stream, overlap=True)

        replays[tag] = replayed(launch, bench.sets)
    x, matrices = bench.product()
    y = torch.empty(1, row.columns, device="cuda", dtype=torch.bfloat16)
    replays["cublas"] = replayed(lambda n: torch.mm(x, matrices[n].t(), out=y), bench.sets)
    times = timed(replays, bench.sets, rounds)
    middle = {tag: statistics.median(t) for tag, t in times.items()}
    return {
        "row": row.name, "nbytes": row.nbytes, "sets": bench.sets, "wrong": wrong, "us": middle,
        "spread": {tag: [min(t), max(t)] for tag, t in times.items()},
        "tb_s": {tag: row.nbytes / us / 1e6 for tag, us in middle.items()},
    }  # fmt: skip


def ceiling() -> float:
    """TB/s of a sum over 2 GB."""
    x = torch.ones(1 << 29, device="cuda")
    torch.sum(x)
    times = []
    for _ in range(10):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        torch.sum(x)
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end))
    return x.numel() * 4 / min(times) / 1e9


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path(os.environ.get("OUT", "build/gemv")))
    parser.add_argument("--model", nargs="+", default=["llama-8b"], choices=[*SHAPES, FORMS])
    parser.add_argument("--variants", action="store_true")
    parser.add_argument("--rounds", type=int, default=15)
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    FOLDER.mkdir(parents=True, exist_ok=True)
    limits = limits_of(torch.cuda.get_device_properties(0).multi_processor_count)
    begun = time.time()
    result: dict[str, object] = {
        **machine("benchmarks.gemv"),
        "ceiling_tb_s": ceiling(),
        "rows": {},
    }
    print(f"read ceiling {result['ceiling_tb_s']:.2f} TB/s", flush=True)
    for model in given.model:
        rows = rows_of(model, limits)
        jobs: list[tuple[Row, str, Built]] = []
        for row in rows:
            wanted = variants(row.request.schedule, given.variants)
            if not any(e.op == "rope" for e in row.request.body.eqns):
                wanted["portable"] = PORTABLE
            jobs += [(row, tag, build(row, tag, s, limits)) for tag, s in wanted.items()]
        with ThreadPoolExecutor(16) as pool:
            facts = list(pool.map(lambda job: assemble(job[2], FOLDER), jobs))
        print(f"{len(jobs)} kernels in {time.time() - begun:.0f} s", flush=True)
        for row in rows:
            mine = {tag: b for r, tag, b in jobs if r is row}
            said = {tag: f for (r, tag, _), f in zip(jobs, facts, strict=True) if r is row}
            report = run_row(row, mine, given.rounds)
            report["kernels"] = said
            result["rows"][f"{model} {row.name}"] = report  # type: ignore[index]
            us, tb = report["us"], report["tb_s"]
            print(f"{model} {row.name}: {row.nbytes / 1e6:.0f} MB, wrong {report['wrong']}")
            for tag in sorted(us, key=us.get):
                fact = said.get(tag, {})
                print(f"   {tag:<18} {us[tag]:8.2f} us {tb[tag]:6.2f} TB/s  {fact}", flush=True)
            save(given.out / "gemv.json", result)
            torch.cuda.empty_cache()
    print(f"{time.time() - begun:.0f} s in all")


if __name__ == "__main__":
    main()
