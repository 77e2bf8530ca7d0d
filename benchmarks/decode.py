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
import json
import os
import shutil
import subprocess
import sys
import time
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

from benchmarks.decode_kernels import build_all, limits_of
from benchmarks.decode_rows import CHECKS, ROWS, ceiling, run_row
from benchmarks.decode_table import Line, plot, table

ROW_SECONDS = 90.0


def _worker(names: list[str], folder: Path, log: Path) -> None:
    """Runs rows and appends a line of JSON for each."""
    rows = {r.name: r for r in (*ROWS, *CHECKS)}

    def write(line: dict[str, object]) -> None:
        with log.open("a") as f:
            f.write(json.dumps(line) + "\n")
            f.flush()
            os.fsync(f.fileno())

    for name in names:
        write({"start": name, "at": time.time()})
        report = ceiling() if name == "ceiling" else run_row(rows[name], folder)
        write({"done": name, **report})


class Board:
    """What the worker has written so far."""

    def __init__(self, log: Path) -> None:
        self.log = log
        self.reports: dict[str, dict[str, object]] = {}
        self.started: tuple[str, float] | None = None

    def refresh(self) -> None:
        self.started = None
        if not self.log.is_file():
            return
        whole, _, _ = self.log.read_text().rpartition("\n")  # a line may be on its way
        for line in whole.splitlines():
            found = json.loads(line)
            if "start" in found:
                self.started = (found["start"], found["at"])
            else:
                self.reports[found["done"]] = found
                self.started = None


def _run_all(names: list[str], folder: Path, log: Path, end: float) -> dict[str, dict[str, object]]:
    """Rows in workers, one worker while all goes well."""
    board, failed = Board(log), dict[str, dict[str, object]]()
    while True:
        board.refresh()
        left = [n for n in names if n not in board.reports and n not in failed]
        if not left or time.time() > end:
            break
        errors = log.with_suffix(".err")
        with errors.open("w") as sink:
            command = [sys.executable, "-m", "benchmarks.decode", "--worker", str(folder), str(log)]
            process = subprocess.Popen([*command, *left], stderr=sink, stdout=sink)
        begun = time.time()
        why = ""
        while process.poll() is None:
            time.sleep(0.25)
            board.refresh()
            name, since = board.started or (left[0], begun)
            if time.time() > end or time.time() - max(since, begun) > ROW_SECONDS:
                why = "out of time"
                process.kill()
                process.wait()
        board.refresh()
        if process.returncode or why:
            name = board.started[0] if board.started else left[0]
            tail = errors.read_text()[-600:]
            failed[name] = {
                "row": name,
                "failed": why or f"exit {process.returncode}",
                "said": tail,
            }
            with log.open("a") as f:
                f.write(json.dumps({"done": name, **failed[name]}) + "\n")
    return board.reports | failed


def _machine() -> dict[str, object]:
    said = {"command": " ".join(sys.argv)}
    if shutil.which("nvidia-smi") is None:
        return {"gpu": "none", **said}
    query = "name,driver_version,clocks.sm,clocks.mem,clocks.max.sm"
    done = subprocess.run(
        ["nvidia-smi", f"--query-gpu={query}", "--format=csv,noheader"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    return {"gpu": done.stdout.strip(), **said}


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
        _worker(names, Path(folder), Path(log))
        return
    end = time.time() + given.seconds
    given.out.mkdir(parents=True, exist_ok=True)
    rows = [r for r in ROWS if not given.only or r.name in given.only]
    checks = [] if given.no_checks else list(CHECKS)
    folder = Path("/tmp/poot-decode")
    decodes = [d for r in (*rows, *checks) for d in r.decodes()]
    facts = build_all(decodes, limits_of(_multiprocessors()), folder)
    spilled = {k: v for k, v in facts.items() if v.get("spills") or v.get("error")}
    print(f"{len(facts)} kernels built in {time.time() - end + given.seconds:.0f} s; "
          f"spilled or refused: {spilled}", flush=True)  # fmt: skip
    log = given.out / "decode-rows.jsonl"
    log.unlink(missing_ok=True)
    names = ["ceiling", *(c.name for c in checks[::6]), *(r.name for r in rows)]
    names += [c.name for c in checks if c.name not in names]
    reports = _run_all(names, folder, log, end)
    lines = [Line.of(r, reports.get(r.name, {})) for r in rows]
    right = [c.name for c in checks if reports.get(c.name, {}).get("right")]
    wrong = {c.name: reports.get(c.name, {}) for c in checks if c.name not in right}
    now = datetime.now(UTC)
    result = {
        "date": now.isoformat(), **_machine(), "ceiling": reports.get("ceiling"),
        "table": [asdict(line) for line in lines], "checks right": right, "checks wrong": wrong,
        "kernels": facts, "rows": reports,
    }  # fmt: skip
    path = given.out / f"decode-{now:%Y-%m-%d}.json"
    path.write_text(json.dumps(result, indent=1, default=str))
    print(f"checks: {len(right)} of {len(checks)} right")
    for name, report in list(wrong.items())[:6]:
        print(f"  not: {name} {str(report)[:500]}")
    print(f"ceiling: {reports.get('ceiling')}")
    print(table(lines), flush=True)
    plot(lines, path.with_suffix(".png"))


def _multiprocessors() -> int:
    asks = "import torch; print(torch.cuda.get_device_properties(0).multi_processor_count)"
    done = subprocess.run([sys.executable, "-c", asks], capture_output=True, text=True, check=False)
    return int(done.stdout) if done.stdout.strip().isdigit() else 132


if __name__ == "__main__":
    main()
