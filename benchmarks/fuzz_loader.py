"""Fuzzes the C runtime's bundle loader with libFuzzer, for a while, and writes what came of it.

    python -m benchmarks.fuzz_loader --seconds 600 [--json FILE] [--work FOLDER]

The fuzzer begins with a bundle for the CPU, its manifest and its object files, and has the
manifest's words as its dictionary. It runs in one process under the address and
undefined-behaviour sanitizers; the first crash or leak ends it. An input that was slow by the clock
is run again alone, and counts as a finding where it takes a second of the processor: on a machine
that is shared the clock alone says nothing. Needs clang.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import resource
import subprocess
import tempfile
import time
from pathlib import Path

from benchmarks import record
from poot.bundle.write import MANIFEST
from tests.support.bundles import members, whole
from tests.support.sources import ROOT

C = Path("runtime/c")
FLAGS = ("-g", "-O1", "-fsanitize=fuzzer,address,undefined", "-fno-sanitize-recover=all")


def build(out: Path) -> list[str]:
    """Compiles the fuzzer; the command."""
    sources = [str(p.relative_to(ROOT)) for p in sorted((ROOT / C / "src").glob("*.c"))]
    command = ["clang", *FLAGS, str(C / "fuzz/loader.c"), *sources, "-lpthread", "-ldl"]
    subprocess.run([*command, "-o", str(out)], cwd=ROOT, check=True)
    return ["clang", *FLAGS, str(C / "fuzz/loader.c"), f"{C}/src/*.c", "-lpthread", "-ldl"]


def write_corpus(folder: Path) -> None:
    """One input of each kind and member: the first byte says what the rest is."""
    objects = {n: d for n, d in members().items() if n.endswith(".o")}
    inputs = [b"\0" + whole(), b"\1" + members()[MANIFEST]]
    inputs += [b"\2" + data for data in objects.values()]
    for n, data in enumerate(inputs):
        (folder / f"seed{n}").write_bytes(data)


def write_dictionary(path: Path) -> None:
    """Every key and short text of the manifest, and numbers at edges."""
    words = set(re.findall(r'"[A-Za-z_.0-9]{1,24}"', members()[MANIFEST].decode()))
    words |= {"-1", "2147483648", "4294967296", "9223372036854775807", "1e999", "null", "[]", "{}"}
    rows = ['"' + w.replace('"', '\\"') + '"' for w in sorted(words)]
    path.write_text("\n".join(rows) + "\n")


def children_s() -> float:
    """Seconds of the processor that child processes have had."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def seconds_of(fuzzer: Path, given: Path, seed: Path) -> float:
    """Seconds of the processor that one input takes by itself."""
    before = children_s()
    env = {**os.environ, "POOT_FUZZ_SEED": str(seed)}
    subprocess.run([str(fuzzer), str(given)], env=env, capture_output=True, check=False)
    return round(children_s() - before, 3)


def fuzz(folder: Path, seconds: int) -> dict[str, object]:
    corpus, seed, words = folder / "corpus", folder / "step.poot", folder / "words"
    corpus.mkdir(parents=True, exist_ok=True)
    write_corpus(corpus)
    write_dictionary(words)
    seed.write_bytes(whole())
    made = build(folder / "fuzz")
    options = [
        f"-max_total_time={seconds}",
        "-max_len=65536",
        "-timeout=3600",
        "-print_final_stats=1",
    ]
    start, before = time.monotonic(), children_s()
    places = [f"-dict={words}", f"-artifact_prefix={folder}/", str(corpus)]
    done = subprocess.run(
        [str(folder / "fuzz"), *options, *places],
        env={**os.environ, "POOT_FUZZ_SEED": str(seed)},
        capture_output=True, text=True, errors="replace", check=False,
    )  # fmt: skip
    spent, used = time.monotonic() - start, children_s() - before
    (folder / "log").write_text(done.stderr)
    stats = {k: int(v) for k, v in re.findall(r"stat::(\w+):\s+(\d+)", done.stderr)}
    covered = re.findall(r"cov: (\d+) ft: (\d+) corp: (\d+)", done.stderr)
    last = [int(n) for n in covered[-1]] if covered else [0, 0, 0]
    slow = {p.name: seconds_of(folder / "fuzz", p, seed) for p in folder.glob("slow-unit-*")}
    found = [p.name for p in folder.glob("*-*") if p.name not in slow]
    found += [name for name, took in slow.items() if took > 1.0]
    return {
        "build": " ".join(made),
        "run": " ".join(["fuzz", *options, "-dict=WORDS", "corpus"]),
        "clang": subprocess.run(
            ["clang", "--version"], capture_output=True, text=True, check=True
        ).stdout.splitlines()[0],
        "seconds": round(spent),
        "seconds of the processor": round(used),
        "runs": stats.get("number_of_executed_units", 0),
        "runs a second": stats.get("average_exec_per_sec", 0),
        "peak rss, MB": stats.get("peak_rss_mb", 0),
        "edges, features, corpus": last,
        "status": done.returncode,
        "slow by the clock, seconds of the processor alone": slow,
        "findings": sorted(found),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=int, default=600)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--work", type=Path)
    asked = parser.parse_args()
    folder = asked.work or Path(tempfile.mkdtemp(prefix="poot-fuzz-"))
    folder.mkdir(parents=True, exist_ok=True)
    record.commit()  # of the tree as it is now, not when the run ends
    got: dict[str, object] = {
        "command": f"python -m benchmarks.fuzz_loader --seconds {asked.seconds}"
    }
    got |= fuzz(folder, asked.seconds)
    print(json.dumps(got, indent=1))
    if asked.json:
        record.save(asked.json, got)
    return 1 if got["status"] or got["findings"] else 0


if __name__ == "__main__":
    raise SystemExit(main())
