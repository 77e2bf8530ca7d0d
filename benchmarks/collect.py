"""One record of a run on a card, from the logs that h200_suite.sh leaves: python -m
benchmarks.collect FOLDER

FOLDER/steps has a line a step: its name, how it ended, its seconds, the commit. Writes
FOLDER/h200.json (commit, machine, driver, date, tests per suite, figures, and what a whole green
run lacks) and prints a table of the steps.
"""

from __future__ import annotations

import json
import platform
import subprocess
import sys
import time
import xml.etree.ElementTree as ET
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.record import commit, save

SUITES = ("cuda", "pycuda-base", "pycuda", "residents", "vulkan", "wgpu", "cases", "hard")
# What a step writes by itself.
FIGURES = ("smollm2", "host", "hip", "lost", "torch")
# The steps of a whole run.
WHOLE = (
    "facts", "host", "lost", "hip", "torch", "checks", "sanitize", "cuda", "pycuda", "model",
    "vulkan", "wgpu",
)  # fmt: skip
QUERY = ["nvidia-smi", "--query-gpu=name,driver_version,memory.total", "--format=csv,noheader"]


def counts(report: Path) -> dict[str, int]:
    """Tests of a JUnit report by how they ended."""
    suite = next(ET.parse(report).getroot().iter("testsuite"))
    whole, failed, errors, skipped = (
        int(suite.get(name, "0")) for name in ("tests", "failures", "errors", "skipped")
    )
    passed = whole - failed - errors - skipped
    return {"passed": passed, "failed": failed + errors, "skipped": skipped}


def failures(report: Path) -> list[str]:
    """Each failed test of a JUnit report, with the line that says why."""
    rows: list[str] = []
    for case in ET.parse(report).getroot().iter("testcase"):
        for found in (*case.iter("failure"), *case.iter("error")):
            text = found.text or found.get("message", "")
            lines = text.splitlines()
            said = [x[1:].strip() for x in lines if x.startswith("E ")] or lines[-1:]
            why = " | ".join(said[:2])
            rows.append(f"{case.get('classname')}::{case.get('name')}: {why}"[:300])
    return rows


def card() -> str:
    """The GPU's name, driver and memory, or why they are unknown."""
    try:
        done = subprocess.run(QUERY, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError) as e:
        return f"unknown: {e}"
    return done.stdout.strip()


@dataclass(frozen=True, slots=True)
class Step:
    """One step as it ended last."""

    name: str
    word: str
    seconds: int
    commit: str

    @staticmethod
    def of(line: str) -> Step:
        name, word, seconds, commit = line.split(" ", 3)
        return Step(name, word, int(seconds), commit)


def lacking(
    steps: Mapping[str, Step], tests: Mapping[str, Mapping[str, int]], gpu: str
) -> list[str]:
    """What keeps the steps from being a whole green run of one commit on a card; nothing where they
    are. `tests` are the counts of each suite's."""
    said = [f"the card is {gpu}"] if gpu.startswith("unknown") else []
    said += [f"{name} was not run" for name in WHOLE if name not in steps]
    said += [f"{n} skipped {row['skipped']} tests" for n, row in tests.items() if row["skipped"]]
    said += [f"{n} passed no test" for n, row in tests.items() if not row["passed"]]
    said += [f"{s.name} failed" for s in steps.values() if s.word != "passed"]
    commits = sorted({s.commit for s in steps.values()})
    if len(commits) > 1:
        said.append(f"steps are of {len(commits)} commits: {'; '.join(commits)}")
    said += [f"the commit is {c}" for c in commits if " " in c]
    return said


def record(folder: Path, steps: Mapping[str, Step]) -> dict[str, object]:
    """Everything that the folder's logs say."""
    gpu = card()
    reports = {n: folder / f"{n}.xml" for n in SUITES if (folder / f"{n}.xml").exists()}
    tests = {n: counts(path) for n, path in reports.items()}
    out: dict[str, object] = {
        "card": gpu,
        "kernel": platform.release(),
        "python": platform.python_version(),
        "date": time.strftime("%Y-%m-%d"),
        "command": "bash benchmarks/h200_suite.sh " + " ".join(steps),
        "whole": lacking(steps, tests, gpu) or "green",
        "steps": {
            s.name: {"result": s.word, "seconds": s.seconds, "commit": s.commit}
            for s in steps.values()
        },
        "tests": tests,
    }
    bad = {n: failures(path) for n, path in reports.items()}
    out["failures"] = {n: rows for n, rows in bad.items() if rows}
    if (folder / "sanitize.log").exists():
        out["sanitizers"] = (folder / "sanitize.log").read_text().splitlines()
    checks = folder / "attention-checks.json"
    if checks.exists():
        found = json.loads(checks.read_text())
        schedules = Counter(row.get("schedule", "none") for row in found["rows"].values())
        out["checks"] = {"forms by schedule": schedules, "wrong": found["wrong"]}
    for name in FIGURES:
        if (folder / f"{name}.json").exists():
            out[name] = json.loads((folder / f"{name}.json").read_text())
    return out


def main(argv: Sequence[str]) -> int:
    folder = Path(argv[0])
    rows = [Step.of(line) for line in (folder / "steps").read_text().splitlines()]
    steps = {row.name: row for row in rows}
    found = record(folder, steps)
    save(folder / "h200.json", found)
    print("----")
    tests = found["tests"]
    assert isinstance(tests, dict)
    for name, step in steps.items():
        print(f"{name:<10} {step.word:<8} {step.seconds:>4} s  {tests.get(name, '')}")
    bad = found["failures"]
    assert isinstance(bad, dict)
    for name, rows in bad.items():
        for row in rows:
            print(f"{name}: {row}")
    whole = found["whole"]
    assert isinstance(whole, str | list)
    print("whole:", f"green at {commit()}" if whole == "green" else f"no: {', '.join(whole)}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
