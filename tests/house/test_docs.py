"""The docs are true where a test can tell: made pages are current, links lead somewhere."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest

from poot.ir.docs import ops_page
from poot.knobs import NAMES
from tests.support.sources import ROOT

PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
LINK = re.compile(r"\]\(([^)#:]+)(?:#[^)]*)?\)")
CODE = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
FILE = re.compile(r"`((?:src|tests|docs|scripts|benchmarks)/[\w./-]+)`")


def test_the_ops_page_is_what_the_op_table_says():
    assert (ROOT / "docs/ops.md").read_text() == ops_page(), "run `python -m poot.ir.docs`"


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.relative_to(ROOT).as_posix())
def test_links_and_file_names_lead_somewhere(page):
    text = page.read_text()
    lost = [link for link in LINK.findall(text) if not (page.parent / link).exists()]
    lost += [name for name in FILE.findall(text) if not (ROOT / name).exists()]
    assert lost == []


@pytest.mark.parametrize(
    "page", [p for p in PAGES if CODE.search(p.read_text())], ids=lambda p: p.name
)
def test_examples_print_what_the_page_says(page):
    code = "".join(CODE.findall(page.read_text()))
    said = [line.removeprefix("#> ") for line in code.splitlines() if line.startswith("#> ")]
    done = subprocess.run(
        [sys.executable, "-"],
        input=code,
        cwd=ROOT / "src",
        env={**os.environ, "PYTHONPATH": str(ROOT)},  # pages on tools of the tests import tests
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.stderr, done.returncode) == ("", 0)
    assert [line for line in done.stdout.splitlines() if line] == said


def test_every_page_is_reached_from_the_index():
    index = ROOT / "docs/index.md"
    linked = {(index.parent / link).resolve() for link in LINK.findall(index.read_text())}
    pages = {p for p in (ROOT / "docs").rglob("*.md") if p != index}
    assert {p.relative_to(ROOT).as_posix() for p in pages - linked} == set()


def test_every_knob_is_on_the_knobs_page():
    text = (ROOT / "docs/knobs.md").read_text()
    assert [name for name in NAMES if f"`{name}`" not in text] == []


def test_no_page_names_a_machine_path_or_a_session():
    private = re.compile(r"/work/|/tmp/|shared/|\bsession's brief\b")
    texts = {p.relative_to(ROOT).as_posix(): p.read_text() for p in PAGES}
    assert [name for name, text in texts.items() if private.search(text)] == []
