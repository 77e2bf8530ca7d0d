"""Prefill attention on one NVIDIA card: poot beside PyTorch's SDPA (cuDNN, flash), in one process,
on the same tensors.

    python -m benchmarks.prefill --out benchmarks/results [--seconds 300] [--only NAME ...]

Kernels are compared with f64 first, and run twice for equal bits. Times are bursts with a rest
before each (the card's power limit is no part of a kernel): a warm replay of a graph, then a timed
one, contenders in a new order every round; medians. Writes prefill-<date>.json and a plot; a table
comes last.
"""

from __future__ import annotations

import argparse
import os
import random
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import torch
from torch.nn import functional
from torch.nn.attention import sdpa_kernel

from benchmarks.card_kernels import Launcher, build, build_all, limits_of
from benchmarks.decode_peers import BACKENDS
from benchmarks.decode_rows import DTYPES, FAILURES, PAGE, WITHIN, error_of
from benchmarks.isolated import machine, multiprocessors, run_all, work
from benchmarks.record import save
from poot.planner.grouped import Numbers

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"  # a dry run has none
ROUNDS, REST, BURST_US = 7, 0.03, 8000.0
FOLDER = Path("/tmp/poot-prefill")


@dataclass(frozen=True, slots=True)
class Prefill:
    """One attention: sizes, how its keys are bounded, and the goals: TFLOP/s, and times cuDNN."""

    name: str
    batch: int
    heads: int
    kv_heads: int
    rows: int
    keys: int
    width: int
    causal: int | None = None
    window: int | None = None
    softcap: float | None = None
    lengths: tuple[int, ...] = ()
    dtype: str = "bf16"
    is_paged: bool = False
    goal: float = 0.0
    goal_ratio: float = 0.0
    value_width: int = 0  # 0: as wide as keys
    shared: int = 0  # channels of a key that all heads share
    is_portable: bool = False  # in subgroup tiles (mma.sync)

    @property
    def schedule(self) -> str:
        return "subgroup_tiles" if self.is_portable else "tiled"

    @property
    def values(self) -> int:
        """Channels of a value."""
        return self.value_width or self.width

    @property
    def numbers(self) -> Numbers | None:
        return None

    @property
    def scale(self) -> float:
        return self.width**-0.5

    @property
    def slots(self) -> int:
        """Of a paged row's pools: whole pages for each batch row, and one that no map names."""
        return PAGE * (1 + self.batch * -(-self.keys // PAGE))

    @property
    def flops(self) -> float:
        """Of the two products, over the keys that a causal bound leaves."""
        seen = float(self.rows * self.keys)
        if self.causal is not None:
            seen = float(sum(min(self.keys, r + self.causal + 1) for r in range(self.rows)))
        return 2.0 * self.batch * self.heads * (self.width + self.values) * seen

    def text(self) -> str:
        """The graph: one attention eqn."""
        lead = (
            f"{self.slots},{self.kv_heads}"
            if self.is_paged
            else (f"{self.batch},{self.kv_heads},{self.keys}")
        )
        lead = f"{self.dtype}[{lead}"
        q = f"{self.dtype}[{self.batch},{self.heads},{self.rows}"
        rows = [
            ("q", f"{q},{self.width}]", ""), ("k", f"{lead},{self.width - self.shared}]", ""),
            ("v", f"{lead},{self.values}]", ""),
        ]  # fmt: skip
        if self.shared:
            type = f"{self.dtype}[{self.batch},1,{self.keys},{self.shared}]"
            rows.append(("k_shared", type, ""))
        if self.is_paged:
            rows.append(("read", f"i32[{self.batch},{self.keys}]", f" range=(0, {self.slots})"))
        if self.lengths:
            rows.append(("len", f"i32[{self.batch}]", f" range=(1, {self.keys + 1})"))
        lines = [f'slot v{n}: {t} "{name}"{r}' for n, (name, t, r) in enumerate(rows)]
        names, values = ", ".join(r[0] for r in rows), ", ".join(f"v{n}" for n in range(len(rows)))
        attrs = f"operands=({names}) scale={self.scale}"
        given = (("causal", self.causal), ("window", self.window), ("softcap", self.softcap))
        attrs += "".join(f" {k}={v}" for k, v in given if v is not None)
        lines.append(f"v{len(rows)}: {q},{self.values}] = attention({values}) {attrs}")
        return "\n".join([*lines, f"out v{len(rows)}"])


ROWS: tuple[Prefill, ...] = (
    Prefill("D128 full", 2, 16, 16, 8192, 8192, 128, goal=745, goal_ratio=1.08),
    Prefill("D128 causal", 2, 16, 16, 8192, 8192, 128, 0, goal=725, goal_ratio=1.17),
    Prefill("D64 full", 2, 32, 32, 8192, 8192, 64, goal=615),
    Prefill("D64 causal", 2, 32, 32, 8192, 8192, 64, 0, goal=580),
    Prefill("D256 full", 2, 8, 8, 8192, 8192, 256, goal=825),
    Prefill("D256 causal", 2, 8, 8, 8192, 8192, 256, 0, goal=800),
    Prefill("GQA 32/8 causal", 4, 32, 8, 4096, 4096, 128, 0, goal=700),
    Prefill("GQA 32/8 causal paged", 4, 32, 8, 4096, 4096, 128, 0, is_paged=True),
    Prefill("D128 causal paged", 2, 16, 16, 8192, 8192, 128, 0, is_paged=True),
    Prefill("D128 chunk 512 paged", 4, 32, 8, 512, 8192, 128, 7680, is_paged=True),
    Prefill("D128 L16384 causal", 1, 16, 16, 16384, 16384, 128, 0),
    Prefill("D128 L1024 full", 16, 16, 16, 1024, 1024, 128),
    Prefill("D128 L1024 causal", 16, 16, 16, 1024, 1024, 128, 0),
    Prefill("GQA L2048 causal", 1, 32, 8, 2048, 2048, 128, 0),
    Prefill("MLA 192/128 causal", 2, 16, 16, 8192, 8192, 192, 0, value_width=128),
    Prefill("MLA 192/128 split causal", 2, 16, 16, 8192, 8192, 192, 0, value_width=128, shared=64),
    *(
        Prefill(f"{name} mma.sync", 2, heads, heads, 8192, 8192, width, causal, is_portable=True)
        for name, heads, width, causal in (
            ("D64 full", 32, 64, None), ("D64 causal", 32, 64, 0), ("D128 full", 16, 128, None),
            ("D128 causal", 16, 128, 0), ("D256 causal", 8, 256, 0),
        )
    ),
    Prefill("D128 causal paged mma.sync", 2, 16, 16, 8192, 8192, 128, 0, is_paged=True,
            is_portable=True),
)  # fmt: skip
_OTHERS = tuple(
    Prefill(f"check {form} {n}{' mma.sync' if portable else ''}", 2, 4, 2, rows, keys, width,
            causal, None, None, lengths, value_width=values, shared=shared, is_portable=portable)
    for form, width, values, shared in (("192/128", 192, 128, 0), ("192/128 split", 192, 128, 64),
                                        ("96/64", 96, 64, 0))
    for portable in (False, True)
    for n, (rows, keys, causal, lengths) in enumerate((
        (777, 777, 0, ()), (100, 900, 800, ()), (256, 1024, 700, (956, 801))
    ))
    if portable or width == 192
)  # fmt: skip
CHECKS: tuple[Prefill, ...] = _OTHERS + tuple(
    Prefill(
        f"check D{width} {dtype} {n}{' paged' * paged}{' mma.sync' * portable}", 2, 4, 2, rows,
        keys, width, causal, window, cap, lengths, dtype, paged, is_portable=portable,
    )
    for portable in (False, True)
    for width in (64, 128, 256)
    for dtype, paged in (("bf16", False), ("f16", False), ("bf16", True))
    for n, (rows, keys, causal, window, cap, lengths) in enumerate((
        (1000, 1000, None, None, None, ()),
        (777, 777, 0, None, None, ()),
        (100, 900, 800, None, None, ()),
        (640, 640, 0, 200, None, ()),
        (65, 300, None, None, 5.0, ()),
        (256, 1024, None, None, None, (1000, 3)),
        (256, 1024, 700, None, None, (956, 801)),
        (3, 64, None, None, None, ()),
    ))
)  # fmt: skip


@dataclass(slots=True)
class Tensors:
    """A row's operands. Keys and values past a length are NaN."""

    q: torch.Tensor
    k: torch.Tensor
    v: torch.Tensor
    out: torch.Tensor
    lengths: torch.Tensor
    k_shared: torch.Tensor | None = None
    key_pool: torch.Tensor | None = None
    value_pool: torch.Tensor | None = None
    read: torch.Tensor | None = None

    def operands(self) -> list[torch.Tensor]:
        """As the kernel takes them."""
        if self.key_pool is None or self.value_pool is None or self.read is None:
            shared = [] if self.k_shared is None else [self.k_shared]
            return [self.q, self.k, self.v, *shared, self.lengths]
        return [self.q, self.key_pool, self.value_pool, self.read, self.lengths]

    @staticmethod
    def of(row: Prefill) -> Tensors:
        dtype = DTYPES[row.dtype]
        q = torch.randn(row.batch, row.heads, row.rows, row.width, device=DEVICE).to(dtype)
        kv = (row.batch, row.kv_heads, row.keys)
        k, v = (torch.randn(*kv, n, device=DEVICE).to(dtype)
                for n in (row.width - row.shared, row.values))  # fmt: skip
        shared = None
        if row.shared:
            shared = torch.randn(row.batch, 1, row.keys, row.shared, device=DEVICE).to(dtype)
        for b, length in enumerate(row.lengths):
            for x in (k, v, *([] if shared is None else [shared])):
                x[b, :, length:] = float("nan")
        lengths = torch.tensor(row.lengths or (0,), dtype=torch.int32, device=DEVICE)
        out = torch.empty(*q.shape[:3], row.values, dtype=dtype, device=DEVICE)
        made = Tensors(q, k, v, out, lengths, shared)
        if row.is_paged:
            made.page(row)
        return made

    def page(self, row: Prefill) -> None:
        """Pools in pages of random order that hold the same keys and values; NaN elsewhere."""
        pages = -(-row.keys // PAGE)
        order = torch.randperm(row.batch * pages, device=DEVICE).view(row.batch, pages) + 1
        at = torch.arange(PAGE, device=DEVICE)
        slots = (order[:, :, None] * PAGE + at).view(row.batch, -1)[:, : row.keys]
        shape = (row.slots, row.kv_heads, row.width)
        pools = [torch.full(shape, float("nan"), dtype=self.k.dtype, device=DEVICE)
                 for _ in range(2)]  # fmt: skip
        for pool, dense in zip(pools, (self.k, self.v), strict=True):
            pool[slots.reshape(-1)] = dense.transpose(1, 2).reshape(-1, row.kv_heads, row.width)
        for b, length in enumerate(row.lengths):
            slots[b, length:] = 0
        self.key_pool, self.value_pool = pools
        self.read = slots.to(torch.int32).contiguous()


def whole_keys(row: Prefill, t: Tensors) -> torch.Tensor:
    """Keys with what their heads share, built."""
    if t.k_shared is None:
        return t.k
    return torch.cat([t.k, t.k_shared.expand(-1, row.kv_heads, -1, -1)], -1)


def reference(row: Prefill, t: Tensors, b: int, h: int) -> torch.Tensor:
    """f64, of one batch row and head, in blocks of query rows."""
    own = h // (row.heads // row.kv_heads)
    length = row.lengths[b] if row.lengths else row.keys
    k = whole_keys(row, t)[b, own, :length].double()
    v = t.v[b, own, :length].double()
    at = torch.arange(length, device=DEVICE)
    outs: list[torch.Tensor] = []
    for first in range(0, row.rows, 2048):
        q = t.q[b, h, first : first + 2048].double()
        s = q @ k.T * row.scale
        if row.softcap is not None:
            s = torch.tanh(s / row.softcap) * row.softcap
        index = torch.arange(first, first + len(q), device=DEVICE)[:, None]
        if row.causal is not None:
            s = s.masked_fill(at > index + row.causal, float("-inf"))
        if row.window is not None:
            s = s.masked_fill(at <= index + (row.causal or 0) - row.window, float("-inf"))
        outs.append(torch.softmax(s, -1) @ v)
    return torch.cat(outs)


def graph_of(call: Callable[[], object], us: float) -> tuple[torch.cuda.CUDAGraph, int]:
    """A graph of as many calls as a burst has."""
    count = max(5, min(40, int(BURST_US / us)))
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(count):
            call()
    return graph, count


def _timed(run: Callable[[], object]) -> float:
    start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    run()
    stop.record()
    torch.cuda.synchronize()
    return start.elapsed_time(stop) * 1e3


def bursts(calls: dict[str, Callable[[], object]]) -> dict[str, list[float]]:
    """Microseconds a call of each contender, a burst a round, in a new order every round."""
    graphs: dict[str, tuple[torch.cuda.CUDAGraph, int]] = {}
    for name, call in calls.items():
        call()
        torch.cuda.synchronize()
        graphs[name] = graph_of(call, _timed(call))
    times: dict[str, list[float]] = {name: [] for name in calls}
    order, rng = list(calls), random.Random(0)
    for _ in range(ROUNDS):
        rng.shuffle(order)
        for name in order:
            graph, count = graphs[name]
            time.sleep(REST)
            graph.replay()
            times[name].append(_timed(graph.replay) / count)
    return times


def _errors(row: Prefill, t: Tensors, got: torch.Tensor) -> float:
    """The largest error of the first and the last head."""
    heads = {(0, 0), (row.batch - 1, row.heads - 1), (row.batch // 2, row.heads // 2)}
    return max(error_of(got[b, h], reference(row, t, b, h)) for b, h in sorted(heads))


def run_row(row: Prefill) -> dict[str, object]:
    """Everything about one row."""
    torch.manual_seed(0)
    t = Tensors.of(row)
    limits = limits_of(torch.cuda.get_device_properties(0).multi_processor_count)
    launcher = Launcher(build(row, limits), FOLDER)
    pointers = {("in", n): x.data_ptr() for n, x in enumerate(t.operands())}
    counters = torch.full((64,), -1, dtype=torch.int32, device=DEVICE)
    pointers |= {("out", 0): t.out.data_ptr(), ("scratch", 0): counters.data_ptr()}
    arguments = launcher.arguments(pointers)

    def poot() -> None:
        launcher.run(arguments, torch.cuda.current_stream().cuda_stream)

    outs: list[torch.Tensor] = []
    for _ in range(2):
        t.out.fill_(float("nan"))
        torch.cuda.synchronize()
        poot()
        torch.cuda.synchronize()
        outs.append(t.out.clone())
    error, same = _errors(row, t, outs[0]), bool(torch.equal(outs[0], outs[1]))
    rests = bool((counters == -1).all())
    right = error < WITHIN[row.dtype] and same and rests and not bool(outs[0].isnan().any())
    report: dict[str, object] = {"row": row.name, "error": error, "same": same, "right": right}
    if row.name.startswith("check"):
        return report
    calls: dict[str, Callable[[], object]] = {"poot": poot}
    # SDPA's causal bound starts at the first key, poot's where the row says.
    peers = ("cudnn", "flash") if row.rows == row.keys else ()
    for name in peers:
        calls[name] = _peer(row, t, name)
    report["peer errors"] = {}
    for name in peers:
        try:
            got = calls[name]()
            assert isinstance(got, torch.Tensor)
            report["peer errors"] = {**report["peer errors"], name: _errors(row, t, got)}
        except FAILURES as e:
            report["peer errors"] = {**report["peer errors"], name: f"{e}"[:200]}
            del calls[name]
    report["us"] = bursts(calls)
    return report


def _peer(row: Prefill, t: Tensors, name: str) -> Callable[[], object]:
    is_grouped, k = row.heads != row.kv_heads, whole_keys(row, t)

    def run() -> object:
        with sdpa_kernel(BACKENDS[name]):
            return functional.scaled_dot_product_attention(
                t.q, k, t.v, is_causal=row.causal is not None, enable_gqa=is_grouped
            )

    return run


def _line(row: Prefill, report: dict[str, object]) -> str:
    us = report.get("us")
    if not isinstance(us, dict):
        return f"{row.name:<28}{str(report)[:300]}"
    rate = {k: row.flops / statistics.median(v) / 1e6 for k, v in us.items()}
    spread = (max(us["poot"]) - min(us["poot"])) / statistics.median(us["poot"])
    ratio = rate["poot"] / rate["cudnn"] if "cudnn" in rate else 0.0
    rates = "".join(f"{rate.get(k, 0.0):>8.0f}" for k in ("poot", "cudnn", "flash"))
    return (
        f"{row.name:<28}{rates}{ratio:>7.3f}{row.goal:>6.0f}{row.goal_ratio:>6.2f}"
        f"  spread {spread:.1%} error {report['error']:.1e} right {report['right']}"
    )


def _plot(reports: dict[str, dict[str, object]], path: Path) -> None:
    """TFLOP/s of every contender by row."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    rows = [r for r in ROWS if isinstance(reports.get(r.name, {}).get("us"), dict)]
    figure, axes = pyplot.subplots(figsize=(9, 0.6 * len(rows) + 1.5))
    for n, name in enumerate(("poot", "cudnn", "flash")):
        rates = [_rate(r, reports[r.name], name) for r in rows]
        axes.barh([y + 0.25 * n for y in range(len(rows))], rates, 0.25, label=name)
    axes.set_yticks([y + 0.25 for y in range(len(rows))], [r.name for r in rows])
    axes.invert_yaxis()
    axes.set_xlabel("TFLOP/s")
    axes.legend(loc="lower right")
    figure.tight_layout()
    figure.savefig(path, dpi=120)


def _rate(row: Prefill, report: dict[str, object], name: str) -> float:
    us = report["us"]
    assert isinstance(us, dict), report
    return row.flops / statistics.median(us[name]) / 1e6 if name in us else 0.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path(os.environ.get("OUT", "build/prefill")))
    parser.add_argument("--seconds", type=float, default=300)
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--no-checks", action="store_true")
    parser.add_argument("--worker", nargs="+", default=[])
    given = parser.parse_args()
    every = {r.name: r for r in (*ROWS, *CHECKS)}
    if given.worker:
        _, log, *names = given.worker
        work(names, Path(log), lambda name: run_row(every[name]))
        return
    end = time.time() + given.seconds
    given.out.mkdir(parents=True, exist_ok=True)
    rows = [r for r in ROWS if not given.only or r.name in given.only]
    checks = [] if given.no_checks else list(CHECKS)
    facts = build_all([*rows, *checks], limits_of(multiprocessors()), FOLDER)
    bad = {k: v for k, v in facts.items() if v.get("spills") or "registers" not in v}
    print(f"{len(facts)} kernels built; spilled or refused: {bad}", flush=True)
    log = given.out / "prefill-rows.jsonl"
    log.unlink(missing_ok=True)
    names = [*(c.name for c in checks[::11]), *(r.name for r in rows)]
    names += [c.name for c in checks if c.name not in names]
    reports = run_all("benchmarks.prefill", names, FOLDER, log, end)
    found = {c.name: reports.get(c.name, {}) for c in checks}
    wrong = {name: report for name, report in found.items() if not report.get("right")}
    now = datetime.now(UTC)
    result = {"date": now.isoformat(), **machine("benchmarks.prefill"), "kernels": facts,
              "checks wrong": wrong, "rows": reports}  # fmt: skip
    path = given.out / f"prefill-{now:%Y-%m-%d}.json"
    save(path, result)
    print(f"checks: {len(checks) - len(wrong)} of {len(checks)} right")
    for name, report in list(wrong.items())[:8]:
        print(f"  not: {name} {str(report)[:500]}")
    print(f"{'TFLOP/s':<28}{'poot':>8}{'cudnn':>8}{'flash':>8}{'ratio':>7}{'goal':>6}{'ratio':>6}")
    print("\n".join(_line(r, reports.get(r.name, {})) for r in rows), flush=True)
    _plot(reports, path.with_suffix(".png"))


if __name__ == "__main__":
    main()
