"""Fetching the demonstration model, with an installer that fetches nothing."""

from __future__ import annotations

import shutil
import subprocess
import tomllib
from pathlib import Path
from types import SimpleNamespace

import pytest

from poot.errors import FormatError, RequestError
from poot.llm import fetch
from poot.llm.fetch import FILE, PACKAGE, VERSION, fetch_model, installed_model, pip_install
from tests.support.smollm2 import smollm2_path
from tests.support.sources import ROOT


def install_real(folder: Path) -> None:
    (folder / FILE).parent.mkdir(parents=True)
    shutil.copyfile(smollm2_path(), folder / FILE)


def test_the_installed_package_is_found_without_importing_it():
    assert installed_model() == smollm2_path()


def test_the_package_is_the_one_that_setup_installs():
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert settings["tool"]["poot"]["model"] == f"{PACKAGE}=={VERSION}"


def test_a_fetched_model_is_kept_and_not_fetched_again(tmp_path: Path):
    path = fetch_model(tmp_path, install_real)
    assert path.stat().st_size == smollm2_path().stat().st_size

    def install_again(folder: Path) -> None:
        raise AssertionError("it was there already")

    assert fetch_model(tmp_path, install_again) == path
    assert [p.name for p in (tmp_path / "models").iterdir()] == [f"{PACKAGE}-{VERSION}"]


def test_another_file_of_that_name_is_refused_and_not_kept(tmp_path: Path):
    def install_other(folder: Path) -> None:
        (folder / FILE).parent.mkdir(parents=True)
        (folder / FILE).write_bytes(b"GGUF")

    with pytest.raises(FormatError, match="has SHA-256"):
        fetch_model(tmp_path, install_other)
    assert list((tmp_path / "models").iterdir()) == []


def test_a_package_without_the_file_is_refused(tmp_path: Path):
    with pytest.raises(FormatError, match=f"holds no {FILE}"):
        fetch_model(tmp_path, lambda folder: folder.mkdir())


def test_two_fetches_at_once_leave_one_model(tmp_path: Path):
    def install_while_another_ends(folder: Path) -> None:
        install_real(folder)
        install_real(tmp_path / "models" / f"{PACKAGE}-{VERSION}")

    assert fetch_model(tmp_path, install_while_another_ends).is_file()
    assert len(list((tmp_path / "models").iterdir())) == 1


def test_pip_gets_one_package_by_name_and_no_dependencies(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    seen: list[list[str]] = []

    def run(command: list[str], **_: object) -> SimpleNamespace:
        seen.append(command)
        return SimpleNamespace(returncode=0, stderr="")

    monkeypatch.setattr(fetch.subprocess, "run", run)
    pip_install(tmp_path)
    (command,) = seen
    assert command[1:4] == ["-m", "pip", "install"]
    assert "--no-deps" in command
    assert command[-1] == f"{PACKAGE}=={VERSION}"
    assert not any("://" in word for word in command)


def test_pips_failure_is_told_with_the_remedy(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    def run(command: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        return subprocess.CompletedProcess(command, 1, "", "ERROR: no route\n")

    monkeypatch.setattr(fetch.subprocess, "run", run)
    with pytest.raises(RequestError, match="ERROR: no route; install it by hand with pip"):
        pip_install(tmp_path)
