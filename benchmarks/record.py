"""What every result says of itself: the commit that it was measured at.

    python -m benchmarks.record --note    writes .commit.json, for a machine without git

A copy of the tree without its history is of that commit where its sources are still those: the note
holds their digest.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import subprocess
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
NOTE = ".commit.json"
SOURCES = ("src", "tests", "benchmarks")
KINDS = (".py", ".sh", ".c", ".cpp", ".h", ".md", ".json", ".txt")


def digest(root: Path) -> str:
    """Of the sources' names and bytes; results and what Python makes are none."""
    said = hashlib.sha256()
    for folder in SOURCES:
        for path in sorted((root / folder).rglob("*")):
            name = path.relative_to(root).as_posix()
            is_made = "__pycache__" in name or name.startswith("benchmarks/results/")
            if path.suffix in KINDS and path.is_file() and not is_made:
                said.update(f"{name}\0{hashlib.sha256(path.read_bytes()).hexdigest()}\n".encode())
    return said.hexdigest()


def _git(root: Path, *words: str) -> str | None:
    """What git says, where the folder is a checkout's root; None where it isn't, or git lacks."""
    try:
        done = subprocess.run(["git", *words], cwd=root, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return done.stdout.strip()


def commit_of(root: Path) -> str:
    """The commit, with "and changes" where a source differs from it, or why it isn't known. A note
    that holds these very sources comes first: a copy's history may be another's."""
    note = root / NOTE
    said = json.loads(note.read_text()) if note.exists() else None
    if said is not None and said["digest"] == digest(root):
        return str(said["commit"])
    if _git(root, "rev-parse", "--show-toplevel") == str(root):
        changes = _git(root, "status", "--porcelain", "--", *SOURCES)
        changed = [x for x in (changes or "").splitlines() if "benchmarks/results/" not in x]
        return f"{_git(root, 'rev-parse', 'HEAD')}{' and changes' if changed else ''}"
    if said is None:
        return f"unknown: there is no history here and no {NOTE}"
    return f"{said['commit']} and changes"


@cache
def commit() -> str:
    """Of this tree, as it was when first asked."""
    return commit_of(ROOT)


def save(path: Path, record: Mapping[str, object]) -> None:
    """Writes a result, with its commit."""
    path.write_text(json.dumps({"commit": commit(), **record}, indent=1, default=str) + "\n")


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--note", action="store_true")
    if parser.parse_args(argv).note:
        note = {"commit": commit(), "digest": digest(ROOT)}
        (ROOT / NOTE).write_text(json.dumps(note) + "\n")
    print(commit())
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
