"""The page whole: it stands alone, holds every part, and is looked at in a browser."""

from __future__ import annotations

import html
import io
import json
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import poot
from poot.errors import BindError
from poot.explain.page import page
from poot.profile import Profile
from tests.support.explained import WEIGHTS, explained_program
from tests.support.html import parsed

FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-sync",
    "--disable-background-networking",
    "--disable-component-update",
    "--hide-scrollbars",
    "--enable-logging=stderr",
    "--window-size=1280,2600",
)
# What the page says of its own layout, left in its title for the test to read.
MEASURE = """<script>addEventListener("load", () => {
  document.querySelectorAll("details.pass").forEach((d) => { d.open = true; });
  const rows = [...document.querySelectorAll(".steps tbody tr")];
  const rail = document.querySelector(".rail svg").getBoundingClientRect();
  const first = rows[0].getBoundingClientRect(), last = rows.at(-1).getBoundingClientRect();
  location.hash = "#kernel0";
  setTimeout(() => { document.title = JSON.stringify({
    wide: document.documentElement.scrollWidth - document.documentElement.clientWidth,
    rail: [rail.top - first.top, rail.bottom - last.bottom],
    open: document.getElementById("kernel0").open,
    held: [...document.querySelectorAll("rect.held")].filter((r) =>
      r.getBoundingClientRect().width > 0 && r.getBoundingClientRect().height > 0).length,
  }); }, 50);
});</script></body>"""


@pytest.fixture(scope="module")
def measured() -> tuple[str, int]:
    """A page with times, and how many boxes its map has."""
    program = explained_program("cpu")
    session = program.bind(WEIGHTS)
    text = page(program, {"main": session.profile(x=np.ones((16, 64), np.float32))})
    session.close()
    return text, parsed(text).with_class("held")


def browse(text: str, folder: Path, *flags: str) -> subprocess.CompletedProcess[str]:
    browser = shutil.which("chromium")
    if browser is None:
        pytest.skip("chromium is not installed")
    file = folder / "page.html"
    file.write_text(text, encoding="utf-8")
    home = f"--user-data-dir={folder / 'home'}"
    command = [browser, *FLAGS, home, *flags, file.as_uri()]
    return subprocess.run(command, capture_output=True, text=True, timeout=90, check=True)


def test_a_page_needs_nothing_from_anywhere(measured: tuple[str, int]):
    found = parsed(measured[0].replace('<meta charset="utf-8"/>', "").split("\n", 1)[1])
    for name, attributes in found.tags:
        assert name not in ("link", "img", "iframe", "object")
        assert "src" not in attributes
        assert (attributes.get("href") or "#").startswith("#")
    assert "url(" not in measured[0]
    assert "@import" not in measured[0]


def test_every_link_has_its_goal(measured: tuple[str, int]):
    found = parsed(measured[0].split("\n", 1)[1])
    goals = {f"#{a['id']}" for _, a in found.tags if "id" in a}
    assert {a["href"] for name, a in found.tags if name == "a"} <= goals


def test_kernels_stand_in_it_word_for_word():
    program = explained_program()
    text = page(program)
    assert all(html.escape(code.text) in text for code in program.codes)
    assert text.count("not measured") == len(program.entries)


def test_names_from_the_user_stay_words():
    name = "</title><script>alert(1)</script>"
    graph = poot.trace(lambda x: x + 1, (poot.slot((4,), "f32"),))
    text = page(poot.compile({name: graph}, "h200", cache=False))
    assert "<script>alert" not in text
    assert html.escape(name) in text


def test_a_profile_of_no_entry_point_is_refused():
    with pytest.raises(BindError, match=r"'other'.*main"):
        page(explained_program(), {"other": Profile("other", ())})


def test_a_browser_lays_it_out_as_meant(measured: tuple[str, int], tmp_path: Path):
    text = measured[0].replace("</body>", MEASURE)
    got = browse(text, tmp_path, "--virtual-time-budget=4000", "--dump-dom")
    title = re.search(r"<title>(.*?)</title>", got.stdout, re.DOTALL)
    assert title is not None
    seen = json.loads(html.unescape(title[1]))
    assert seen["wide"] == 0, "the page is wider than its window"
    assert seen["open"], "a link to a kernel opens its text"
    assert max(map(abs, seen["rail"])) <= 2, "arcs stand beside their rows"
    assert seen["held"] == measured[1], "every value of the arena is drawn"
    assert "CONSOLE" not in got.stderr


def test_a_screenshot_shows_the_map_and_the_marks(measured: tuple[str, int], tmp_path: Path):
    text = measured[0].replace('<details class="pass"', '<details open class="pass"')
    shot = tmp_path / "shot.png"
    browse(text, tmp_path, f"--screenshot={shot}")
    pixels = np.asarray(Image.open(io.BytesIO(shot.read_bytes())).convert("RGB")).reshape(-1, 3)
    colours, counts = np.unique(pixels, axis=0, return_counts=True)
    seen = {tuple(c): int(n) for c, n in zip(colours.tolist(), counts.tolist(), strict=True)}
    for what, colour in (
        ("attention", (0xD9, 0x57, 0x2B)),
        ("product", (0x2F, 0x6F, 0xB5)),
        ("eqns gone", (0xFD, 0xE8, 0xE6)),
        ("eqns come", (0xE2, 0xF5, 0xE7)),
    ):
        assert seen.get(colour, 0) > 400, what
