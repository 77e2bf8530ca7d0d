"""One record of a run on a card, from the logs that h200_suite.sh leaves: python -m
benchmarks.collect FOLDER STEP=WORD=SECONDS ...

Writes FOLDER/h200.json (machine, driver, command, date, tests per suite, model figures) and prints
a table of the steps.
"""

from __future__ import annotations

import json
import platform
import subprocess
import sys
import time
import xml.etree.ElementTree as ET
from collections.abc import Sequence
from pathlib import Path

SUITES = ("cuda", "pycuda-base", "pycuda", "residents", "vulkan", "wgpu")
# What a step writes by itself.
FIGURES = ("smollm2", "host", "hip", "lost")
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


def record(folder: Path, steps: Sequence[str]) -> dict[str, object]:
    """Everything that the folder's logs say."""
    parted = [step.split("=") for step in steps]
    out: dict[str, object] = {
        "card": card(),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "date": time.strftime("%Y-%m-%d"),
        "command": "bash benchmarks/h200_suite.sh " + " ".join(p[0] for p in parted),
        "steps": {name: {"result": word, "seconds": int(s)} for name, word, s in parted},
        "tests": {n: counts(folder / f"{n}.xml") for n in SUITES if (folder / f"{n}.xml").exists()},
    }
    bad = {n: failures(folder / f"{n}.xml") for n in SUITES if (folder / f"{n}.xml").exists()}
    out["failures"] = {n: rows for n, rows in bad.items() if rows}
    if (folder / "sanitize.log").exists():
        out["sanitizers"] = (folder / "sanitize.log").read_text().splitlines()
    for name in FIGURES:
        if (folder / f"{name}.json").exists():
            out[name] = json.loads((folder / f"{name}.json").read_text())
    return out


def main(argv: Sequence[str]) -> int:
    folder, steps = Path(argv[0]), argv[1:]
    found = record(folder, steps)
    (folder / "h200.json").write_text(json.dumps(found, indent=1) + "\n")
    print("----")
    tests = found["tests"]
    assert isinstance(tests, dict)
    for step in steps:
        name, word, seconds = step.split("=")
        print(f"{name:<10} {word:<8} {seconds:>4} s  {tests.get(name, '')}")
    bad = found["failures"]
    assert isinstance(bad, dict)
    for name, rows in bad.items():
        for row in rows:
            print(f"{name}: {row}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
