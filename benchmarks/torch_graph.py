"""poot inside a torch program on a card: python -m benchmarks.torch_graph --out FILE

A torch program (norm, projections, attention over a paged cache by `poot.torch.paged_decode`, a
residual) runs eager and as a CUDA graph that torch captures, is compared with the same by torch's
own attention, and timed: a replay beside one of torch's, whose keys it gathers first, and an eager
call of the op alone on the host. Last, a model that `torch.compile(backend="poot")` runs there.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import torch

import poot
import poot.torch
from benchmarks.isolated import machine
from benchmarks.record import save
from poot import ops
from poot.torch import as_custom_op, paged_decode


@dataclass(frozen=True, slots=True)
class Shape:
    """A decode: rows, heads, width, tokens of each row, blocks of the pool."""

    rows: int
    heads: int
    kv_heads: int
    width: int
    tokens: int
    size: int = 16

    @property
    def blocks(self) -> int:
        return self.tokens // self.size


SHAPES = {
    "8 rows of 4096": Shape(8, 32, 8, 128, 4096),
    "1 row of 32768": Shape(1, 32, 8, 128, 32768),
    "64 rows of 1024": Shape(64, 32, 8, 128, 1024),
}


class Model:
    """One layer's attention in torch, by poot or by torch."""

    def __init__(self, s: Shape, device: str) -> None:
        make = {"dtype": torch.bfloat16, "device": device}
        hidden = s.heads * s.width
        pool = s.rows * s.blocks
        self.s = s
        self.x = torch.randn(s.rows, hidden, **make)
        self.wq, self.wo = (torch.randn(hidden, hidden, **make) * hidden**-0.5 for _ in range(2))
        self.k, self.v = (torch.randn(pool, s.size, s.kv_heads, s.width, **make) for _ in range(2))
        table = torch.randperm(pool, device=device).view(s.rows, s.blocks)
        self.table = table.to(torch.int32)
        self.lengths = torch.full((s.rows,), s.tokens, dtype=torch.int32, device=device)

    def by_poot(self, q: torch.Tensor) -> torch.Tensor:
        return paged_decode(q, self.k, self.v, self.table, self.lengths)

    def by_torch(self, q: torch.Tensor) -> torch.Tensor:
        s = self.s
        keys, values = (
            x[self.table.long()].view(s.rows, s.tokens, s.kv_heads, s.width).transpose(1, 2)
            for x in (self.k, self.v)
        )
        seen = torch.arange(s.tokens, device=q.device) < self.lengths[:, None]
        return torch.nn.functional.scaled_dot_product_attention(
            q, keys, values, attn_mask=seen[:, None, None, :], enable_gqa=True
        )

    def run(self, attend: Callable[[torch.Tensor], torch.Tensor]) -> torch.Tensor:
        s = self.s
        h = torch.nn.functional.rms_norm(self.x, self.x.shape[-1:])
        q = (h @ self.wq).view(s.rows, s.heads, 1, s.width)
        return self.x + attend(q).reshape(s.rows, -1) @ self.wo


def captured(run: Callable[[], torch.Tensor]) -> tuple[torch.cuda.CUDAGraph, torch.Tensor]:
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        for _ in range(3):
            run()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = run()
    return graph, out


def replay_us(graph: torch.cuda.CUDAGraph, count: int = 50) -> float:
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    for _ in range(count):
        graph.replay()
    end.record()
    torch.cuda.synchronize()
    return 1000.0 * begin.elapsed_time(end) / count


def worst(got: torch.Tensor, want: torch.Tensor) -> float:
    return float((got.float() - want.float()).abs().max())


def measured(s: Shape) -> dict[str, object]:
    """Differences and times of one shape; lengths and keys change between replays."""
    model = Model(s, "cuda")
    eager = worst(model.run(model.by_poot), model.run(model.by_torch))
    ours, out = captured(lambda: model.run(model.by_poot))
    theirs, want = captured(lambda: model.run(model.by_torch))
    replayed = 0.0
    for length in (s.tokens, s.tokens // 3, 1, s.tokens - 5):
        model.lengths.fill_(length)
        model.k.normal_()
        model.x.normal_()
        ours.replay()
        theirs.replay()
        replayed = max(replayed, worst(out, want))
    model.lengths.fill_(s.tokens)
    times = [(replay_us(ours), replay_us(theirs)) for _ in range(7)]
    q = torch.randn(s.rows, s.heads, 1, s.width, dtype=torch.bfloat16, device="cuda")
    calls: list[float] = []
    for _ in range(200):
        begin = time.perf_counter()
        model.by_poot(q)
        calls.append(1e6 * (time.perf_counter() - begin))
        torch.cuda.synchronize()
    return {
        **asdict(s), "eager differs by": eager, "replayed differs by": replayed,
        "replay, us": round(statistics.median(a for a, _ in times), 1),
        "torch's replay, us": round(statistics.median(b for _, b in times), 1),
        "host's call of the op, us": round(statistics.median(calls), 1),
        "right": max(eager, replayed) < 0.06,
    }  # fmt: skip


def with_state() -> dict[str, object]:
    """A program with a State and a range in a graph: what a replay out of range leaves."""

    def step(cache, x, pos):
        cache = ops.dynamic_update_slice(cache, x, pos, axis=0)
        return cache.sum(axis=0), cache

    specs = (poot.state((64, 256)), poot.slot((1, 256), "f32"), poot.slot((), "i32", range=(0, 64)))
    op = as_custom_op(poot.compile(poot.trace(step, specs), "cuda:0"))
    cache, x = torch.zeros(64, 256, device="cuda"), torch.ones(1, 256, device="cuda")
    pos = torch.zeros((), dtype=torch.int32, device="cuda")
    graph, out = captured(lambda: op(x * 2.0, pos, cache))
    cache.zero_()
    for n in range(64):
        pos.fill_(n)
        graph.replay()
    op.wait()
    right = bool((out == 128.0).all()) and bool((cache == 2.0).all())
    pos.fill_(64)
    graph.replay()
    said = "nothing"
    try:
        op.wait()
    except poot.errors.RangeError as e:
        said = e.message
    return {"right": right and bool((cache == 2.0).all()) and "64" in said, "out of range": said}


class Layer(torch.nn.Module):
    """A layer as of Llama 3 8B, without a cache, on the tokens that are given."""

    def __init__(self, hidden: int = 4096, heads: int = 32, kv_heads: int = 8) -> None:
        super().__init__()
        self.heads, self.kv_heads, self.width = heads, kv_heads, hidden // heads
        rows = (heads + 2 * kv_heads) * self.width
        self.words = torch.nn.Embedding(1024, hidden)
        self.norm, self.after = torch.nn.RMSNorm(hidden), torch.nn.RMSNorm(hidden)
        self.qkv = torch.nn.Linear(hidden, rows, bias=False)
        self.out = torch.nn.Linear(hidden, hidden, bias=False)
        self.gate, self.up = (torch.nn.Linear(hidden, 14336, bias=False) for _ in range(2))
        self.down = torch.nn.Linear(14336, hidden, bias=False)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.words(ids)
        b, n, c = x.shape
        sizes = [self.heads * self.width, *(self.kv_heads * self.width,) * 2]
        q, k, v = self.qkv(self.norm(x)).split(sizes, -1)
        q, k, v = (y.view(b, n, -1, self.width).transpose(1, 2) for y in (q, k, v))
        attend = torch.nn.functional.scaled_dot_product_attention
        y = attend(q, k, v, is_causal=True, enable_gqa=True)
        x = x + self.out(y.transpose(1, 2).reshape(b, n, c))
        z = self.after(x)
        return x + self.down(torch.nn.functional.silu(self.gate(z)) * self.up(z))


@torch.no_grad()
def compiled(tokens: int) -> dict[str, object]:
    """The layer by torch.compile(backend=poot) beside eager torch: differences and times, and what
    becomes of weights that are written to and of integers past 32 bits."""
    torch._dynamo.reset()
    torch.manual_seed(0)
    backend = poot.torch.Backend()
    layer = Layer().to("cuda", torch.bfloat16).eval()
    call = torch.compile(layer, backend=backend)
    ids = torch.randint(0, 1024, (1, tokens), device="cuda")
    apart = worst(call(ids), layer(ids))
    layer.out.weight.mul_(2.0)
    rebound = worst(call(ids), layer(ids))
    wide = torch.compile(lambda i: (i + 1) * 2, backend=backend)
    far = torch.tensor([5, 2**40], device="cuda")
    exact = torch.equal(wide(far), (far + 1) * 2) and torch.equal(wide(far[:1]), (far[:1] + 1) * 2)
    times: dict[str, list[float]] = {"poot": [], "eager": []}
    for _ in range(20):
        for name, run in (("poot", call), ("eager", layer)):
            torch.cuda.synchronize()
            begin = time.perf_counter()
            run(ids)
            torch.cuda.synchronize()
            times[name].append(1e6 * (time.perf_counter() - begin))
    return {
        "tokens": tokens, "differs by": apart, "after a write to a weight": rebound,
        "int64 exact": exact, "left": [f"{n.op}: {n.why}" for n in backend.left],
        "a call, us": round(statistics.median(times["poot"]), 1),
        "eager's, us": round(statistics.median(times["eager"]), 1),
        "right": max(apart, rebound) < 0.06 and exact and not backend.left,
    }  # fmt: skip


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("build/torch.json"))
    options = parser.parse_args(argv)
    rows: dict[str, dict[str, object]] = {"a State and a range": with_state()}
    print(rows["a State and a range"], flush=True)
    for name, shape in SHAPES.items():
        rows[name] = measured(shape)
        print(name, rows[name], flush=True)
    for tokens in (1, 512):
        name = f"torch.compile, {tokens} tokens"
        rows[name] = compiled(tokens)
        print(name, rows[name], flush=True)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    about = {**machine("benchmarks.torch_graph"), "torch": torch.__version__}
    save(options.out, {**about, "date": time.strftime("%Y-%m-%d"), "rows": rows})
    return 0 if all(row["right"] for row in rows.values()) else 1


if __name__ == "__main__":
    raise SystemExit(main())
