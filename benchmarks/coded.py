"""Decode over caches of int8 and fp8 codes with a scale a row, and within sliding windows, on one
NVIDIA card: poot's kernels over PyTorch's tensors, L2 cold, by graph replay.

    python -m benchmarks.coded --out benchmarks/results [--seconds 100] [--only NAME ...]

Each kernel is compared with f64 over the values that its codes stand for, and run twice for equal
bits; its words between groups must rest after. Beside the planner's numbers every row runs the
others that wait to be chosen from, and the bf16 kernel over as many keys. Rows run in workers of
their own. Writes coded-<date>.json; a table comes last. Bytes are codes and scales, once each, of
the keys that are seen.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

import torch

from benchmarks.card_kernels import Built, Launcher, build, build_all, limits_of
from benchmarks.decode_rows import COLD_NBYTES, error_of, graph_us
from benchmarks.isolated import machine, multiprocessors, run_all, work
from benchmarks.record import save
from poot.planner.grouped import CODED, Numbers
from tests.support.attention_forms import Form, form_only

FOLDER = Path("/tmp/poot-coded")
WITHIN = 4e-3  # by norm, of an output in bf16; its own rounding is 1.6e-3
KINDS = {"i8": torch.int8, "f8e4m3": torch.float8_e4m3fn, "": torch.bfloat16}
TOPS = {"i8": 127.0, "f8e4m3": 448.0}


@dataclass(frozen=True, slots=True)
class Row:
    """One decode of equal lengths. `codes` is "" for bf16; with a `window` only so many last keys
    are seen, by a limit of each row."""

    name: str
    batch: int
    length: int
    heads: int = 32
    kv_heads: int = 8
    width: int = 128
    codes: str = "i8"
    is_paged: bool = False
    window: int = 0
    numbers: Numbers | None = None

    schedule: str = "grouped"

    @property
    def seen(self) -> int:
        return self.window or self.length

    @property
    def nbytes(self) -> int:
        """Keys and values that are seen, with their scales."""
        row = self.width + 4 if self.codes else 2 * self.width
        return 2 * self.batch * self.seen * self.kv_heads * row

    @property
    def form(self) -> Form:
        return Form(
            self.batch, self.heads, self.kv_heads, 1, self.length, self.width, self.width, "bf16",
            live=True, paged=self.is_paged, codes=self.codes, begin=bool(self.window),
            scale=self.width**-0.5,
        )  # fmt: skip

    def text(self) -> str:
        return form_only(self.form)

    def variants(self) -> list[Row]:
        """The row by other numbers, and over as many keys of bf16."""
        out = [
            replace(self, name=f"{self.name} {'-'.join(map(str, n))}", numbers=n)
            for n in (*CODED[self.width], *OTHERS.get(self.width, ()))[1:]
        ]
        plain = replace(self, name=f"{self.name} bf16", codes="")
        return [*out, plain] if self.codes else [replace(self, name=f"{self.name} whole", window=0)]


# Numbers that the planner has no use for yet: (warps, groups a compute unit, stages, keys a tile).
OTHERS: dict[int, tuple[Numbers, ...]] = {
    64: ((12, 1, 7, 16), (4, 4, 5, 16)),
    128: ((12, 1, 4, 16), (4, 2, 5, 16)),
    256: ((4, 1, 4, 16),),
}
ROWS: tuple[Row, ...] = (
    Row("i8 B1 L32768", 1, 32768),
    Row("i8 B32 L4096", 32, 4096),
    Row("i8 B32 L4096 paged", 32, 4096, is_paged=True),
    Row("i8 B32 64/8 L8192", 32, 8192, heads=64),
    Row("i8 B32 D64 L4096", 32, 4096, width=64),
    Row("i8 B32 16/8 D256 L4096", 32, 4096, heads=16, width=256),
    Row("fp8 B1 L32768", 1, 32768, codes="f8e4m3"),
    Row("fp8 B32 L4096", 32, 4096, codes="f8e4m3"),
    Row("fp8 B32 L4096 paged", 32, 4096, codes="f8e4m3", is_paged=True),
    Row("window 1024 of 32768 B8", 8, 32768, codes="", window=1024),
    Row("window 1024 of 32768 B8 paged", 8, 32768, codes="", window=1024, is_paged=True),
    Row("window 4096 of 32768 B8 i8", 8, 32768, window=4096),
)
ALL = {r.name: r for row in ROWS for r in (row, *row.variants())}


class Bench:
    """One kernel, and sets of keys and values so that each call finds a cold cache."""

    def __init__(self, row: Row, built: Built) -> None:
        self.row, self.launcher = row, Launcher(built, FOLDER)
        made = {"device": "cuda"}
        b, n, kv, w = row.batch, row.length, row.kv_heads, row.width
        self.q = torch.randn(b, row.heads, 1, w, **made).to(torch.bfloat16)
        self.out = torch.empty_like(self.q)
        self.words = torch.full((max(built.words, 1),), -1, dtype=torch.int32, **made)
        pool = b * n + 7
        self.read = torch.randperm(pool, device="cuda", dtype=torch.int32)[: b * n].view(b, n)
        self.length = torch.full((b,), n, dtype=torch.int32, **made)
        self.limit = torch.full((b,), n - 1 - row.seen, dtype=torch.int32, **made)
        lead = (pool, kv) if row.is_paged else (b, kv, n)
        count = max(2, min(8, COLD_NBYTES // row.nbytes + 1))
        self.sets = [[self._rows(lead, w) for _ in "kv"] for _ in range(count)]
        self.arguments = [self._arguments(both) for both in self.sets]

    def _rows(self, lead: tuple[int, ...], width: int) -> list[torch.Tensor]:
        """[codes, scales], or [rows]."""
        rows = torch.randn(*lead, width, device="cuda")
        if not self.row.codes:
            return [rows.to(torch.bfloat16)]
        scales = rows.abs().amax(-1) / TOPS[self.row.codes]
        codes = rows / scales[..., None]
        codes = codes.round() if self.row.codes == "i8" else codes
        return [codes.to(KINDS[self.row.codes]), scales]

    def _arguments(self, both: list[list[torch.Tensor]]) -> object:
        row = self.row
        ins = [self.q, *(x for part in both for x in part)]
        ins += [self.read] if row.is_paged else []
        ins += [self.length]
        ins += [self.limit] if row.window else []
        pointers = {("in", n): x.data_ptr() for n, x in enumerate(ins)}
        pointers |= {("out", 0): self.out.data_ptr(), ("scratch", 0): self.words.data_ptr()}
        return self.launcher.arguments(pointers)

    def call(self, n: int) -> None:
        self.launcher.run(self.arguments[n], torch.cuda.current_stream().cuda_stream)

    def wanted(self, b: int) -> torch.Tensor:
        """f64, of batch row b of the first set: [heads, width]."""
        row = self.row
        values: list[torch.Tensor] = []
        for part in self.sets[0]:
            held = part[0].view(torch.uint8) if row.codes else part[0]  # fp8 isn't indexed
            rows = held[self.read[b].long()].transpose(0, 1) if row.is_paged else held[b]
            if row.codes:
                rows = rows.contiguous().view(KINDS[row.codes])
            wide = rows.float().double()
            if row.codes:
                scales = part[1][self.read[b].long()].T if row.is_paged else part[1][b]
                wide = wide * scales.double()[..., None]
            values.append(wide[:, row.length - row.seen :])
        q = self.q[b, :, 0].double().view(row.kv_heads, -1, row.width)
        weights = torch.softmax(q @ values[0].transpose(1, 2) * row.width**-0.5, -1)
        return (weights @ values[1]).reshape(row.heads, row.width)

    def check(self) -> dict[str, object]:
        outs: list[torch.Tensor] = []
        for _ in range(2):
            self.out.fill_(float("nan"))
            self.call(0)
            torch.cuda.synchronize()
            outs.append(self.out.clone())
        worst = max(error_of(outs[0][b, :, 0], self.wanted(b)) for b in {0, self.row.batch - 1})
        same, rests = bool(torch.equal(*outs)), bool((self.words == -1).all())
        is_right = worst < WITHIN and same and rests
        return {"error": worst, "same": same, "rests": rests, "right": is_right}


def run(name: str) -> dict[str, object]:
    """A row: checks and times of the planner's kernel and of the others."""
    torch.manual_seed(0)
    limits = limits_of(torch.cuda.get_device_properties(0).multi_processor_count)
    row = ALL[name]
    report: dict[str, object] = {"nbytes": row.nbytes, "checks": {}, "us": {}}
    checks, times = {}, {}
    for one in (row, *row.variants()):
        try:
            bench = Bench(one, build(one, limits))
        except ValueError as e:  # numbers that don't fit
            checks[one.name] = {"right": None, "why": str(e)[:200]}
            continue
        checks[one.name] = bench.check()
        if checks[one.name]["right"]:
            calls = [lambda n=n, bench=bench: bench.call(n) for n in range(len(bench.sets))]
            times[one.name] = [graph_us(calls) for _ in range(2)]
        del bench
        torch.cuda.empty_cache()
    return {**report, "checks": checks, "us": times,
            "right": all(c["right"] is not False for c in checks.values())}  # fmt: skip


def _line(row: Row, report: dict[str, object]) -> list[str]:
    us, checks = report.get("us"), report.get("checks")
    if not isinstance(us, dict) or not isinstance(checks, dict):
        return [f"{row.name:<32}{str(report)[:200]}"]
    found = {name: statistics.median(t[0] for t in rounds) for name, rounds in us.items()}
    wrong = [name for name, c in checks.items() if c["right"] is False]
    mine = found.pop(row.name, None)
    rate = f"{row.nbytes / mine / 1e6:.2f} TB/s" if mine else "-"
    out = [
        f"{row.name:<32}{mine or 0:>9.1f} us {rate:>10}  {'WRONG ' + str(wrong) if wrong else ''}"
    ]
    return out + [f"    {name:<40}{t:>9.1f} us" for name, t in found.items()]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path(os.environ.get("OUT", "build/coded")))
    parser.add_argument("--seconds", type=float, default=100)
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--worker", nargs="+", default=[])
    given = parser.parse_args()
    if given.worker:
        _, log, *names = given.worker
        work(names, Path(log), run)
        return 0
    end = time.time() + given.seconds
    given.out.mkdir(parents=True, exist_ok=True)
    rows = [r for r in ROWS if not given.only or r.name in given.only]
    specs = [one for row in rows for one in (row, *row.variants())]
    facts = build_all(specs, limits_of(multiprocessors()), FOLDER)
    log = given.out / "coded-rows.jsonl"
    log.unlink(missing_ok=True)
    reports = run_all("benchmarks.coded", [r.name for r in rows], FOLDER, log, end)
    now = datetime.now(UTC)
    result = {"date": now.isoformat(), **machine("benchmarks.coded"), "kernels": facts,
              "rows": reports}  # fmt: skip
    save(given.out / f"coded-{now:%Y-%m-%d}.json", result)
    spilled = {k: v for k, v in facts.items() if v.get("spills") or v.get("error")}
    print(f"{len(facts)} kernels; spilled or refused: {spilled}")
    for row in rows:
        print("\n".join(_line(row, reports.get(row.name, {}))))
    return 0 if all(reports.get(r.name, {}).get("right") for r in rows) else 1


if __name__ == "__main__":
    raise SystemExit(main())
