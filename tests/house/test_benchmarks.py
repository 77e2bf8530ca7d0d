"""Results say which commit they are of, and a card's run says whether it is whole and green."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path

import pytest

from benchmarks.collect import WHOLE, Step, lacking
from benchmarks.record import NOTE, commit_of, digest, save
from tests.support.sources import ROOT

BENCHMARKS = sorted((ROOT / "benchmarks").glob("*.py"))
SHELL = sorted((ROOT / "benchmarks").glob("*.sh"))


@pytest.mark.parametrize("path", BENCHMARKS, ids=lambda p: p.name)
def test_a_result_is_written_with_its_commit(path):
    """By `record.save` alone."""
    if path.name != "record.py":
        assert re.findall(r"write_text\(\s*json\.|json\.dump\(", path.read_text()) == []


@pytest.mark.parametrize("path", SHELL, ids=lambda p: p.name)
def test_a_script_parses(path):
    subprocess.run(["bash", "-n", path], check=True)


def tree(root: Path) -> Path:
    for name in ("src/a.py", "tests/b.py", "benchmarks/c.sh", "benchmarks/results/old.json"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(name)
    return root


def test_a_copy_without_history_is_of_the_commit_whose_sources_it_holds(tmp_path):
    root = tree(tmp_path)
    assert commit_of(root).startswith("unknown")
    (root / NOTE).write_text(json.dumps({"commit": "abc", "digest": digest(root)}))
    assert commit_of(root) == "abc"
    (root / "benchmarks/results/old.json").write_text("new")
    assert commit_of(root) == "abc"
    (root / "src/a.py").write_text("other")
    assert commit_of(root) == "abc and changes"


def test_a_checkout_is_of_its_commit_with_changes_where_there_are_any(tmp_path):
    root = tree(tmp_path)
    who = ["-c", "user.name=a", "-c", "user.email=a@b"]
    for words in (["init", "-q"], ["add", "."], [*who, "commit", "-qm", "one"]):
        subprocess.run(["git", *words], cwd=root, check=True)
    assert re.fullmatch(r"[0-9a-f]{40}", commit_of(root))
    (root / "tests/b.py").write_text("other")
    assert commit_of(root).endswith(" and changes")


def test_a_saved_result_begins_with_its_commit(tmp_path):
    save(tmp_path / "x.json", {"us": 3.0})
    assert list(json.loads((tmp_path / "x.json").read_text())) == ["commit", "us"]


def steps(**words: str) -> dict[str, Step]:
    made = {name: Step(name, "passed", 1, "abc") for name in WHOLE}
    return made | {name: Step(name, word, 1, "abc") for name, word in words.items()}


def test_a_run_is_whole_where_every_step_passed_at_one_commit():
    tests = {"cuda": {"passed": 3, "failed": 0, "skipped": 0}}
    gpu = "NVIDIA H200"
    assert lacking(steps(), tests, gpu) == []
    assert lacking(steps(wgpu="FAILED"), tests, gpu) == ["wgpu failed"]
    fewer = {k: v for k, v in steps().items() if k != "cuda"}
    assert lacking(fewer, {}, gpu) == ["cuda was not run"]
    other = {**steps(), "host": Step.of("host passed 3 def and changes")}
    assert lacking(other, tests, gpu) == [
        "steps are of 2 commits: abc; def and changes",
        "the commit is def and changes",
    ]
    none = {"cuda": {"passed": 0, "failed": 0, "skipped": 9}}
    assert lacking(steps(), none, "unknown: no nvidia-smi") == [
        "the card is unknown: no nvidia-smi", "cuda skipped 9 tests", "cuda passed no test",
    ]  # fmt: skip


def test_the_cards_script_leaves_a_record_of_its_commit(tmp_path):
    """With one step, without a card."""
    folders = {name: str(tmp_path / name) for name in ("OUT", "STASH", "SITE", "KEPT", "CARRIED")}
    done = subprocess.run(
        ["bash", "benchmarks/h200_suite.sh", "facts", "model"],
        cwd=ROOT, env={**os.environ, **folders}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    said = json.loads((tmp_path / "OUT/h200.json").read_text())
    assert re.match(r"[0-9a-f]{40}|unknown", said["commit"]), done.stderr
    assert said["steps"]["facts"]["result"] == "passed"
    assert said["steps"]["model"]["result"] == "FAILED"
    assert "no model: stash both its pieces first" in done.stdout
    assert "host was not run" in said["whole"]
    assert (tmp_path / "OUT/logs.tar.gz").exists()
    assert done.returncode == 1


def test_the_cards_script_runs_every_file_with_a_test_that_is_marked_for_it():
    script = (ROOT / "benchmarks/h200_suite.sh").read_text()
    asked = [ROOT / name for name in re.findall(r"tests/[\w/]+(?:\.py)?", script)]
    marks = re.compile(r"pytest\.mark\.cuda|@on\((?!\")(?!but=\"[^\"]*cuda)|@on\([^)]*\"cuda\"")
    files = [p for p in (ROOT / "tests").rglob("test_*.py") if marks.search(p.read_text())]
    others = {"tests/house", "tests/support"}
    left = [
        p.relative_to(ROOT).as_posix()
        for p in files
        if not any(p == a or a in p.parents for a in asked)
        and not any(ROOT / o in p.parents for o in others)
    ]
    assert left == []
