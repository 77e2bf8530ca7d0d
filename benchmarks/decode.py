"""Decode attention on one NVIDIA card: poot beside PyTorch's SDPA and FlashInfer, in one process,
on the same tensors, L2 cold, by graph replay.

    python -m benchmarks.decode --out benchmarks/results [--seconds 420] [--only NAME ...]

Every kernel is compared with f64 first, run twice for equal bits, and its words between groups
must rest after; lengths are read on the device, and what lies past a row's end is NaN. One process
does all rows while nothing fails: a row that hangs or breaks the context is noted, and the next row
gets a new process. Writes decode-<date>.json and a plot; a table comes last.
"""

from __future__ import annotations

import argparse
import os
import time
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

from benchmarks.card_kernels import build_all, limits_of
from benchmarks.decode_rows import CHECKS, ROWS, ceiling, run_row
from benchmarks.decode_table import Line, plot, table
from benchmarks.isolated import machine, multiprocessors, run_all, work
from benchmarks.record import save


def _row(name: str, folder: Path) -> dict[str, object]:
    rows = {r.name: r for r in (*ROWS, *CHECKS)}
    return ceiling() if name == "ceiling" else run_row(rows[name], folder)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path(os.environ.get("OUT", "build/decode")))
    parser.add_argument("--seconds", type=float, default=420)
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--no-checks", action="store_true")
    parser.add_argument("--worker", nargs="+", default=[])
    given = parser.parse_args()
    if given.worker:
        folder, log, *names = given.worker
        work(names, Path(log), lambda name: _row(name, Path(folder)))
        return
    end = time.time() + given.seconds
    given.out.mkdir(parents=True, exist_ok=True)
    rows = [r for r in ROWS if not given.only or r.name in given.only]
    checks = [] if given.no_checks else list(CHECKS)
    folder = Path("/tmp/poot-decode")
    decodes = [d for r in (*rows, *checks) for d in r.decodes()]
    facts = build_all(decodes, limits_of(multiprocessors()), folder)
    spilled = {k: v for k, v in facts.items() if v.get("spills") or v.get("error")}
    print(f"{len(facts)} kernels built in {time.time() - end + given.seconds:.0f} s; "
          f"spilled or refused: {spilled}", flush=True)  # fmt: skip
    log = given.out / "decode-rows.jsonl"
    log.unlink(missing_ok=True)
    names = ["ceiling", *(c.name for c in checks[::6]), *(r.name for r in rows)]
    names += [c.name for c in checks if c.name not in names]
    reports = run_all("benchmarks.decode", names, folder, log, end)
    lines = [Line.of(r, reports.get(r.name, {})) for r in rows]
    right = [c.name for c in checks if reports.get(c.name, {}).get("right")]
    wrong = {c.name: reports.get(c.name, {}) for c in checks if c.name not in right}
    now = datetime.now(UTC)
    result = {
        "date": now.isoformat(), **machine("benchmarks.decode"), "ceiling": reports.get("ceiling"),
        "table": [asdict(line) for line in lines], "checks right": right, "checks wrong": wrong,
        "kernels": facts, "rows": reports,
    }  # fmt: skip
    path = given.out / f"decode-{now:%Y-%m-%d}.json"
    save(path, result)
    print(f"checks: {len(right)} of {len(checks)} right")
    for name, report in list(wrong.items())[:6]:
        print(f"  not: {name} {str(report)[:500]}")
    print(f"ceiling: {reports.get('ceiling')}")
    print(table(lines), flush=True)
    plot(lines, path.with_suffix(".png"))


if __name__ == "__main__":
    main()
