"""The rows of the decode table, and what one row measures: poot's kernels and the peers in turn, in
one process, on the same tensors, after each was compared with f64."""

from __future__ import annotations

import gc
import statistics
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import torch

from benchmarks.card_kernels import Built, Launcher, build, limits_of
from benchmarks.decode_kernels import Decode, Numbers
from benchmarks.decode_peers import flashinfer_calls, sdpa
from poot.planner.grouped import HEADS_FIRST

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"  # a dry run has none
PAGE = 16
DTYPES = {"bf16": torch.bfloat16, "f16": torch.float16, "f32": torch.float32}
# Relative errors by norm: an output's own rounding is 1.6e-3 in bf16 and 2e-4 in f16.
WITHIN = {"bf16": 4e-3, "f16": 1e-3, "f32": 2e-6}
COLD_NBYTES = 400_000_000
CALLS, TIMES = 8, 15
# What a peer raises that isn't installed, wasn't built, or doesn't take a shape.
FAILURES = (ImportError, RuntimeError, ValueError, TypeError, OSError, AttributeError)


@dataclass(frozen=True, slots=True)
class Row:
    """One row of the table: lengths of the batch, heads, width; the peer of the goal and the goal
    as a ratio to it (or TB/s where `goal_is_rate`)."""

    name: str
    lengths: tuple[int, ...]
    heads: int
    kv_heads: int
    width: int
    dtype: str = "bf16"
    peers: tuple[str, ...] = ("cudnn",)
    goal: float = 1.0
    goal_is_rate: bool = False
    others: tuple[Numbers, ...] = ()
    capacity: int = 0

    @property
    def is_ragged(self) -> bool:
        return len(set(self.lengths)) > 1 or self.capacity > 0

    @property
    def keys(self) -> int:
        longest = max(self.capacity, max(self.lengths))
        return -(-longest // PAGE) * PAGE

    @property
    def nbytes(self) -> int:
        """Keys and values, read once."""
        size = DTYPES[self.dtype].itemsize
        return 2 * sum(self.lengths) * self.kv_heads * self.width * size

    @property
    def slots(self) -> int:
        return PAGE * (1 + sum(-(-n // PAGE) for n in self.lengths))

    def decodes(self) -> list[Decode]:
        """Every kernel of poot's that the row runs; the planner's choices first."""
        batch = len(self.lengths)
        live = Decode(batch, self.heads, self.kv_heads, self.width, self.keys, self.dtype)
        paged = replace(live, pool=self.slots)
        base = [paged] if self.is_ragged and not self.capacity else [live, paged]
        if not self.is_ragged:
            base.append(replace(live, is_live=False))
        if batch > 1:
            base.append(replace(paged, order=HEADS_FIRST))
        return base + [replace(d, numbers=n) for n in self.others for d in base[:2] if not d.order]


def zipf(count: int, total: int) -> tuple[int, ...]:
    sum_ = sum(1 / (i + 1) for i in range(count))
    return tuple(max(16, int(total / (i + 1) / sum_)) for i in range(count))


WIDE, NARROW = (8, 1, 3, 16), (4, 2, 3, 16)
# 144 KiB of copies in flight in each compute unit, where the others have 128.
DEEP = (6, 1, 4, 16)
ROWS: tuple[Row, ...] = (
    Row("B1 L4096", (4096,), 32, 8, 128, peers=("cudnn", "flash"), goal=0.75, others=(WIDE,)),
    Row("B1 L32768", (32768,), 32, 8, 128, goal=0.90, others=(DEEP, NARROW)),
    Row("B1 L131072", (131072,), 32, 8, 128, goal=0.97, others=(DEEP, NARROW)),
    Row("B8 L4096", (4096,) * 8, 32, 8, 128, goal=0.93),
    Row("B32 L4096", (4096,) * 32, 32, 8, 128, goal=0.98, others=(NARROW,)),
    Row("B64 L8192", (8192,) * 64, 32, 8, 128, goal=0.985, others=(NARROW,)),
    Row("B32 64/8 L8192", (8192,) * 32, 64, 8, 128, goal=0.99, others=(NARROW, DEEP)),
    Row("B16 32/32 L4096", (4096,) * 16, 32, 32, 128, goal=0.98, others=(NARROW,)),
    Row("B32 D64 L4096", (4096,) * 32, 32, 8, 64, goal=0.97,
        others=((8, 1, 5, 16), (12, 1, 4, 16), (4, 4, 3, 16))),
    Row("B32 16/8 D256 L4096", (4096,) * 32, 16, 8, 256, peers=("flash",), goal=0.98,
        others=((3, 1, 4, 16), (6, 1, 2, 16))),
    Row("ragged 64", zipf(64, 262144), 32, 8, 128, peers=("flashinfer",), goal=0.50,
        others=(NARROW,)),
    Row("ragged 8", (131072, 16384, 8192, 4096, 2048, 1024, 512, 100), 32, 8, 128,
        peers=("flashinfer",)),
    Row("f32 B32 L4096", (4096,) * 32, 32, 8, 128, "f32", peers=("math",), goal=4.4,
        goal_is_rate=True),
    Row("f32 B1 L32768", (32768,), 32, 8, 128, "f32", peers=()),
    Row("f32 64/8 L4096", (4096,) * 32, 64, 8, 128, "f32", peers=()),
    Row("f32 D64 L4096", (4096,) * 32, 32, 8, 64, "f32", peers=()),
)  # fmt: skip
_RAGGED = (
    ((1, 16, 17, 300, 95, 33, 1000, 4095), 4, 4200), ((1000,), 8, 5008), ((30000,), 1, 0),
    ((777, 777, 777), 8, 0), (zipf(40, 20000), 4, 0), ((5,), 8, 512),
)  # fmt: skip
_KINDS = (("bf16", 128, 4), ("bf16", 64, 4), ("bf16", 256, 2), ("f16", 128, 8), ("bf16", 128, 1),
          ("f32", 128, 4), ("f32", 64, 3), ("f32", 128, 8))  # fmt: skip
CHECKS: tuple[Row, ...] = tuple(
    Row(f"check {dtype} D{width} g{repeat} {lengths[:3]}", lengths, repeat * kv, kv, width, dtype,
        peers=(), capacity=capacity or max(lengths) + 1)
    for dtype, width, repeat in _KINDS for lengths, kv, capacity in _RAGGED
)  # fmt: skip


@dataclass(slots=True)
class Tensors:
    """A row's tensors: several sets of keys and values, so that each call finds a cold cache."""

    row: Row
    q: torch.Tensor
    out: torch.Tensor
    lengths: torch.Tensor
    keys: list[torch.Tensor] = field(default_factory=list)
    values: list[torch.Tensor] = field(default_factory=list)
    key_pools: list[torch.Tensor] = field(default_factory=list)
    value_pools: list[torch.Tensor] = field(default_factory=list)
    read: torch.Tensor | None = None
    pages: list[torch.Tensor] = field(default_factory=list)

    @staticmethod
    def of(row: Row, sets: int) -> Tensors:
        """Normal data. What lies past a row's end, and what no row's map names, is NaN."""
        dtype, device = DTYPES[row.dtype], DEVICE
        batch = len(row.lengths)
        q = torch.randn(batch, row.heads, 1, row.width, device=device).to(dtype)
        lengths = torch.tensor(row.lengths, dtype=torch.int32, device=device)
        made = Tensors(row, q, torch.empty_like(q), lengths)
        made._map()
        is_dense = not row.is_ragged or row.capacity > 0
        for _ in range(sets):
            pools = [torch.randn(row.slots, row.kv_heads, row.width, device=device, dtype=dtype)
                     for _ in range(2)]  # fmt: skip
            for pool in pools:
                pool[:PAGE] = float("nan")
            made.key_pools.append(pools[0])
            made.value_pools.append(pools[1])
            if is_dense:
                made.keys.append(made.gathered(pools[0]))
                made.values.append(made.gathered(pools[1]))
        return made

    def _map(self) -> None:
        """Pages in random order; entries past a row's end name slot 0."""
        row = self.row
        order = torch.randperm(row.slots // PAGE - 1, dtype=torch.int32) + 1
        read = torch.zeros(len(row.lengths), row.keys, dtype=torch.int32)
        at = 0
        for b, length in enumerate(row.lengths):
            count = -(-length // PAGE)
            own = order[at : at + count]
            slots = (own[:, None] * PAGE + torch.arange(PAGE, dtype=torch.int32)).reshape(-1)
            read[b, :length] = slots[:length]
            self.pages.append(own)
            at += count
        self.read = read.to(DEVICE)

    def gathered(self, pool: torch.Tensor) -> torch.Tensor:
        """The dense form of a pool: [batch, heads, keys, width]."""
        assert self.read is not None
        row = self.row
        out = torch.empty(
            len(row.lengths), row.kv_heads, row.keys, row.width, device=DEVICE, dtype=pool.dtype
        )
        for b in range(len(row.lengths)):
            out[b] = pool[self.read[b].long()].transpose(0, 1)
        return out

    def rows(self) -> list[int]:
        """Batch rows that are compared: all of few, else the first, the middle and the last."""
        count = len(self.row.lengths)
        return list(range(count)) if count <= 8 else [0, count // 2, count - 1]

    def reference(self, n: int = 0) -> torch.Tensor:
        """f64, of the rows compared."""
        assert self.read is not None
        row = self.row
        outs: list[torch.Tensor] = []
        for b in self.rows():
            at = self.read[b, : row.lengths[b]].long()
            keys, values = (
                pool[n][at].transpose(0, 1).double() for pool in (self.key_pools, self.value_pools)
            )
            q = self.q[b, :, 0].view(row.kv_heads, -1, row.width).double()
            weights = torch.softmax(q @ keys.transpose(1, 2) * row.width**-0.5, -1)
            outs.append((weights @ values).view(row.heads, row.width))
        return torch.stack(outs)


def error_of(got: torch.Tensor, want: torch.Tensor) -> float:
    """||got - want|| / ||want||; NaN where anything is missing."""
    return float((got.double() - want).norm() / want.norm())


class Bench:
    """One kernel of poot's over a row's tensors."""

    def __init__(self, built: Built, tensors: Tensors, folder: Path) -> None:
        self.launcher = Launcher(built, folder)
        self.tensors = tensors
        self.words = torch.full((max(built.words, 1),), -1, dtype=torch.int32, device=DEVICE)
        decode = built.spec
        assert isinstance(decode, Decode)
        keys = tensors.key_pools if decode.pool else tensors.keys
        values = tensors.value_pools if decode.pool else tensors.values
        self.arguments = []
        for k, v in zip(keys, values, strict=True):
            ins = [tensors.q, k, v, *([tensors.read] if decode.pool else []),
                   *([tensors.lengths] if decode.is_live else [])]  # fmt: skip
            pointers = {("in", n): t.data_ptr() for n, t in enumerate(ins) if t is not None}
            pointers |= {("out", 0): tensors.out.data_ptr(), ("scratch", 0): self.words.data_ptr()}
            self.arguments.append(self.launcher.arguments(pointers))

    def call(self, n: int, *, overlap: bool = False) -> Callable[[], None]:
        def run() -> None:
            stream = torch.cuda.current_stream().cuda_stream
            self.launcher.run(self.arguments[n], stream, overlap=overlap)

        return run

    def check(self, want: torch.Tensor, *, overlap: bool = False) -> dict[str, object]:
        """Error against f64; whether two runs agree bit for bit; whether all words rest after."""
        outs: list[torch.Tensor] = []
        for _ in range(2):
            self.tensors.out.fill_(float("nan"))
            torch.cuda.synchronize()
            self.call(0, overlap=overlap)()
            torch.cuda.synchronize()
            outs.append(self.tensors.out.clone())
        rows = self.tensors.rows()
        within = WITHIN[self.tensors.row.dtype]
        error = error_of(outs[0][rows, :, 0], want)
        same = bool(torch.equal(outs[0].nan_to_num(9.0), outs[1].nan_to_num(9.0)))
        rests = bool((self.words == -1).all())
        is_whole = not bool(outs[0].isnan().any())
        right = error < within and same and rests and is_whole
        return {"error": error, "same": same, "rests": rests, "whole": is_whole, "right": right}


def graph_us(calls: list[Callable[[], object]]) -> tuple[float, float, float]:
    """(median, low, high) microseconds a call, by replays of a graph of CALLS calls or more."""
    for call in calls:
        call()
    torch.cuda.synchronize()
    rounds = max(1, -(-CALLS // len(calls)))
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(rounds):
            for call in calls:
                call()
    for _ in range(3):
        graph.replay()
    torch.cuda.synchronize()
    times: list[float] = []
    for _ in range(TIMES):
        start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        graph.replay()
        stop.record()
        torch.cuda.synchronize()
        times.append(start.elapsed_time(stop) * 1e3 / (rounds * len(calls)))
    times.sort()
    return statistics.median(times), times[1], times[-2]


def _peers(
    row: Row, tensors: Tensors
) -> tuple[dict[str, list[Callable[[], object]]], dict[str, str]]:
    """Each peer's calls, and why one is missing."""
    found: dict[str, list[Callable[[], object]]] = {}
    missing: dict[str, str] = {}
    for name in row.peers:
        if name != "flashinfer":
            found[name] = list(sdpa(name, tensors.q, tensors.keys, tensors.values))
    if row.dtype == "f32":
        return found, missing
    try:
        paged = (-1, PAGE, row.kv_heads, row.width)
        pools = [
            torch.stack([k.view(paged), v.view(paged)], 1)
            for k, v in zip(tensors.key_pools, tensors.value_pools, strict=True)
        ]
        counts = torch.tensor([0, *(-(-n // PAGE) for n in row.lengths)], dtype=torch.int32)
        starts = counts.cumsum(0).to(torch.int32).to(DEVICE)
        last = torch.tensor([(n - 1) % PAGE + 1 for n in row.lengths], dtype=torch.int32).to(DEVICE)
        for cores in (False, True):
            calls = flashinfer_calls(
                tensors.q[:, :, 0], pools, torch.cat(tensors.pages).to(DEVICE), starts, last,
                tensor_cores=cores,
            )  # fmt: skip
            found[f"flashinfer{' tensor' if cores else ''}"] = list(calls)
    except FAILURES as e:  # a peer that isn't there, or that fails, is noted
        missing["flashinfer"] = f"{type(e).__name__}: {e}"[:200]
    return found, missing


def _check_peers(
    peers: dict[str, list[Callable[[], object]]], tensors: Tensors, want: torch.Tensor
) -> dict[str, object]:
    out: dict[str, object] = {}
    for name, calls in list(peers.items()):
        try:
            got = calls[0]()
            assert isinstance(got, torch.Tensor)
            rows = tensors.rows()
            got = got[:, :, 0] if got.dim() == 4 else got
            out[name] = error_of(got[rows], want)
        except FAILURES as e:  # a backend that refuses the shape is noted
            out[name] = f"{type(e).__name__}: {e}"[:200]
            del peers[name]
    return out


def run_row(row: Row, folder: Path) -> dict[str, object]:
    """Everything about one row: checks, then two rounds of times with the peers around."""
    torch.manual_seed(0)
    is_check = row.name.startswith("check")
    sets = 1 if is_check else max(2, min(8, int(COLD_NBYTES // row.nbytes) + 1))
    tensors = Tensors.of(row, sets)
    want = tensors.reference()
    limits = limits_of(torch.cuda.get_device_properties(0).multi_processor_count)
    report: dict[str, object] = {"row": row.name, "nbytes": row.nbytes, "goal": row.goal}
    benches: dict[str, Bench] = {}
    checks: dict[str, dict[str, object]] = {}
    for decode in row.decodes():
        try:
            bench = Bench(build(decode, limits), tensors, folder)
            found = bench.check(want)
            late = bench.check(want, overlap=True)
            checks[decode.name] = {**found, "overlap right": late["right"]}
            if found["right"]:
                benches[decode.name] = bench
        except ValueError as e:
            checks[decode.name] = {"right": None, "why": str(e)[:300]}
    report["checks"] = checks
    if is_check:
        report["right"] = all(c["right"] is not False for c in checks.values())
        return report
    peers, missing = _peers(row, tensors)
    report["missing"] = missing
    report["peer errors"] = _check_peers(peers, tensors, want)
    times: dict[str, list[tuple[float, float, float]]] = {}
    for turn in range(3):
        for name, calls in peers.items():
            times.setdefault(name, []).append(graph_us(calls))
        if turn == 2:
            break
        for name, bench in benches.items():
            calls = [bench.call(n) for n in range(sets)]
            times.setdefault(f"poot {name}", []).append(graph_us(calls))
            spec = bench.launcher.built.spec
            if isinstance(spec, Decode) and spec.numbers is None and not spec.order:
                calls = [bench.call(n, overlap=True) for n in range(sets)]
                times.setdefault(f"poot {name} overlap", []).append(graph_us(calls))
    report["us"] = times
    del benches, peers, tensors
    gc.collect()
    torch.cuda.empty_cache()
    return report


def ceiling() -> dict[str, float]:
    """Read bandwidth of a large sum, TB/s, and an empty launch's time in a graph, us."""
    data = torch.empty(1 << (30 if DEVICE == "cuda" else 10), device=DEVICE).normal_()
    us, _, _ = graph_us([lambda: torch.sum(data)])
    one = torch.zeros(1, device=DEVICE)
    small, _, _ = graph_us([lambda: one.add_(1)] * 20)
    return {"read_tb_s": data.numel() * 4 / us / 1e6, "small_launch_us": small}
