"""The commands of the README are there, run, and ask for what pyproject.toml declares."""

from __future__ import annotations

import os
import re
import subprocess
import tomllib

import pytest

from scripts import requirements
from tests.support.sources import ROOT

SHELL = [*sorted((ROOT / "scripts").glob("*.sh")), ROOT / ".ci/run"]
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]


@pytest.mark.parametrize("script", SHELL, ids=lambda p: p.name)
def test_a_script_parses_and_may_be_run(script):
    subprocess.run(["bash", "-n", script], check=True)
    assert os.access(script, os.X_OK)
    assert script.read_text().startswith("#!/usr/bin/env bash\n")
    assert "\nset -euo pipefail\n" in script.read_text()


def test_the_readme_names_scripts_that_are_there():
    commands = re.findall(r"^bash (\S+)", (ROOT / "README.md").read_text(), re.MULTILINE)
    assert commands == ["scripts/demo.sh", "scripts/test.sh"]
    assert all((ROOT / c).is_file() for c in commands)


def test_set_up_asks_for_extras_that_exist():
    text = (ROOT / "scripts/setup.sh").read_text()
    asked = {word for row in re.findall(r'extras="(.*?)"', text) for word in row.split()}
    assert asked <= set(EXTRAS)
    assert {"vulkan", "wgpu", "llm", "cli", "test"} <= asked


def test_set_up_without_a_mode_says_how_to_use_it():
    done = subprocess.run(
        ["bash", ROOT / "scripts/setup.sh"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert "setup.sh demo|test" in done.stderr


def test_set_up_says_all_that_is_missing_where_it_may_not_install(tmp_path):
    for program in ("dirname", "id", "uname", "ldconfig", "grep"):
        real = subprocess.run(["which", program], capture_output=True, text=True, check=False)
        if real.returncode == 0:
            (tmp_path / program).symlink_to(real.stdout.strip())
    done = subprocess.run(
        ["/bin/bash", ROOT / "scripts/setup.sh", "test"],
        env={"PATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "missing for the test" in done.stderr
    assert "Python 3.11 or newer" in done.stderr
    assert "spirv-val (Debian: spirv-tools)" in done.stderr
    assert "only by apt-get as root" in done.stderr


def test_requirements_are_poots_own_and_those_of_the_extras(monkeypatch):
    monkeypatch.setattr(requirements.shutil, "which", lambda _: None)
    got = requirements.requirements(["vulkan", "test"])
    assert set(EXTRAS["vulkan"]) | set(EXTRAS["test"]) <= set(got)
    assert any(r.startswith("numpy") for r in got)
    assert not set(EXTRAS["wgpu"]) & set(got)


def test_a_checker_that_is_there_already_is_not_fetched(monkeypatch):
    monkeypatch.setattr(requirements.shutil, "which", lambda _: "/usr/bin/it")
    names = {requirements.package(r) for r in requirements.requirements(["test"])}
    assert names & set(requirements.PROGRAMS) == set()
    assert "pytest" in names


@pytest.mark.parametrize(
    "text, name",
    [
        ("pyright[nodejs]==1.1", "pyright"),
        ("numpy>=2.0", "numpy"),
        ("a-b_c", "a-b_c"),
        ("x ; y", "x"),
        ("z~=1", "z"),
    ],
)
def test_a_requirements_name_is_what_stands_before_its_version(text, name):
    assert requirements.package(text) == name
