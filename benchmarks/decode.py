"""Decode attention on one NVIDIA card: poot beside PyTorch's SDPA and FlashInfer, in one process, on
the same tensors, L2 cold, by graph replay.

    python -m benchmarks.decode --out benchmarks/results [--seconds 420] [--only NAME ...]

Every kernel is compared with f64 first, run twice for equal bits, and its words between groups must
rest after; lengths are read on the device, and what lies past a row's end is NaN. A row is a process's
work for as long as nothing fails: a row that hangs or breaks the context is noted, and the next row
gets a new process. Writes decode-<date>.json and a plot; a table comes last.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

from benchmarks.decode_kernels import build_all, limits_of
from benchmarks.decode_rows import CHECKS, ROWS, Row, ceiling, run_row

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
        for line in self.log.read_text().splitlines():
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
    query = "name,driver_version,clocks.sm,clocks.mem,clocks.max.sm"
    done = subprocess.run(
        ["nvidia-smi", f"--query-gpu={query}", "--format=csv,noheader"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    return {"gpu": done.stdout.strip(), "command": " ".join(sys.argv)}


def _median(times: object) -> float | None:
    if not isinstance(times, list) or not times:
        return None
    mids = sorted(float(t[0]) for t in times)
    return mids[len(mids) // 2]


def summary(row: Row, report: dict[str, object]) -> dict[str, object]:
    """A row of the table: poot's best planned kernel, dense and paged, the peers, the ratios."""
    us = report.get("us")
    if not isinstance(us, dict):
        return {"row": row.name, "failed": report.get("failed", "no times")}
    found = {str(k): _median(v) for k, v in us.items()}
    peers = {k: v for k, v in found.items() if not k.startswith("poot ") and v}
    planned = {d.name: d for d in row.decodes() if d.numbers is None}
    out: dict[str, object] = {"row": row.name}
    for name, d in planned.items():
        form = "paged" if d.pool else "live" if d.is_live else "fixed"
        plain, overlap = found.get(f"poot {name}"), found.get(f"poot {name} overlap")
        out[form], out[f"{form} overlap"] = plain, overlap
    best = min(peers.values(), default=None)
    mine = out.get("live") or out.get("paged")
    out["peers"], out["best peer"] = peers, best
    if isinstance(mine, float):
        out["TB/s"] = report["nbytes"] / mine / 1e6  # type: ignore[operator]
        out["ratio"] = mine / best if best else None
        out["goal"] = row.goal
        rate = out["TB/s"]
        is_met = (
            rate >= row.goal if row.goal_is_rate else best is not None and mine / best <= row.goal
        )  # type: ignore[operator]
        out["met"] = bool(is_met)
    out["others"] = {k: v for k, v in found.items() if k.startswith("poot ") and k[5:].removesuffix(" overlap") not in planned}  # fmt: skip
    return out


def _number(value: object, digits: int = 1) -> str:
    return f"{value:.{digits}f}" if isinstance(value, float) else "-"


def _table(rows: list[dict[str, object]]) -> str:
    head = f"{'row':<22}{'live':>8}{'+ovl':>8}{'fixed':>8}{'paged':>8}{'+ovl':>8}{'TB/s':>7}  {'ratio':>6}{'goal':>6}  peers"
    lines = [head]
    for r in rows:
        if "failed" in r:
            lines.append(f"{r['row']:<22}failed: {r['failed']}")
            continue
        peers = ", ".join(f"{k} {_number(v)}" for k, v in dict(r["peers"]).items())  # type: ignore[call-overload]
        cells = "".join(
            f"{_number(r.get(c)):>8}"
            for c in ("live", "live overlap", "fixed", "paged", "paged overlap")
        )
        mark = "ok" if r.get("met") else "  "
        lines.append(
            f"{r['row']:<22}{cells}{_number(r.get('TB/s'), 2):>7}  {_number(r.get('ratio'), 3):>6}{_number(r.get('goal'), 2):>6} {mark} {peers}"
        )
        for name, value in dict(r["others"]).items():  # type: ignore[call-overload]
            lines.append(f"    {name} {_number(value)}")
    return "\n".join(lines)


def _plot(rows: list[dict[str, object]], path: Path) -> None:
    try:
        import matplotlib  # noqa: PLC0415 - only where it is there

        matplotlib.use("Agg")
        from matplotlib import pyplot  # noqa: PLC0415
    except ImportError:
        return
    shown = [r for r in rows if isinstance(r.get("ratio"), float)]
    figure, axes = pyplot.subplots(figsize=(9, 0.45 * len(shown) + 1.5))
    axes.barh([str(r["row"]) for r in shown], [r["ratio"] for r in shown], color="#3a6ea5")
    for n, r in enumerate(shown):
        axes.plot([r["goal"], r["goal"]], [n - 0.4, n + 0.4], color="#c0392b")
    axes.axvline(1.0, color="black", linewidth=0.8)
    axes.invert_yaxis()
    axes.set_xlabel("time / best peer's time, same run (red: goal)")
    figure.tight_layout()
    figure.savefig(path, dpi=120)


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
    table = [summary(r, reports.get(r.name, {})) for r in rows]
    right = [c.name for c in checks if reports.get(c.name, {}).get("right")]
    wrong = {c.name: reports.get(c.name, {}) for c in checks if c.name not in right}
    now = datetime.now(UTC)
    result = {
        "date": now.isoformat(), **_machine(), "ceiling": reports.get("ceiling"), "table": table,
        "checks right": right, "checks wrong": wrong, "kernels": facts, "rows": reports,
    }  # fmt: skip
    path = given.out / f"decode-{now:%Y-%m-%d}.json"
    path.write_text(json.dumps(result, indent=1, default=str))
    _plot(table, path.with_suffix(".png"))
    print(
        f"checks: {len(right)} of {len(checks)} right",
        *(f"  not: {k} {str(v)[:500]}" for k, v in list(wrong.items())[:6]),
        sep="\n",
    )
    print(f"ceiling: {reports.get('ceiling')}")
    print(_table(table), flush=True)


def _multiprocessors() -> int:
    done = subprocess.run(
        [sys.executable, "-c", "import torch; print(torch.cuda.get_device_properties(0).multi_processor_count)"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    return int(done.stdout) if done.stdout.strip().isdigit() else 132


if __name__ == "__main__":
    main()
