"""Rows of a benchmark in processes of their own: one that hangs or breaks the context is noted, and
the next gets a new process."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

ROW_SECONDS = 90.0


def work(names: list[str], log: Path, run: Callable[[str], dict[str, object]]) -> None:
    """Runs rows, and appends a line of JSON at the start and at the end of each."""

    def write(line: dict[str, object]) -> None:
        with log.open("a") as f:
            f.write(json.dumps(line) + "\n")
            f.flush()
            os.fsync(f.fileno())

    for name in names:
        write({"start": name, "at": time.time()})
        write({"done": name, **run(name)})


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


def run_all(
    module: str, names: list[str], folder: Path, log: Path, end: float
) -> dict[str, dict[str, object]]:
    """Rows in workers of a module, one worker while all goes well; its reports by name."""
    board, failed = Board(log), dict[str, dict[str, object]]()
    while True:
        board.refresh()
        left = [n for n in names if n not in board.reports and n not in failed]
        if not left or time.time() > end:
            break
        errors = log.with_suffix(".err")
        with errors.open("w") as sink:
            command = [sys.executable, "-m", module, "--worker", str(folder), str(log)]
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


def machine(module: str) -> dict[str, object]:
    said = {"command": " ".join([module, *sys.argv[1:]])}
    if shutil.which("nvidia-smi") is None:
        return {"gpu": "none", **said}
    query = "name,driver_version,clocks.sm,clocks.mem,clocks.max.sm"
    done = subprocess.run(
        ["nvidia-smi", f"--query-gpu={query}", "--format=csv,noheader"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    return {"gpu": done.stdout.strip(), **said}


def multiprocessors() -> int:
    asks = "import torch; print(torch.cuda.get_device_properties(0).multi_processor_count)"
    done = subprocess.run([sys.executable, "-c", asks], capture_output=True, text=True, check=False)
    return int(done.stdout) if done.stdout.strip().isdigit() else 132
