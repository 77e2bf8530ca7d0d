"""Exit codes and messages of the command line."""

from __future__ import annotations

import importlib
import io
from dataclasses import dataclass
from types import ModuleType
from typing import TextIO

import pytest

from poot.cli import main as exported
from poot.cli.options import Command
from poot.errors import FormatError

MAIN = importlib.import_module("poot.cli.main")


@dataclass(frozen=True, slots=True)
class Fake:
    """A command's module that prints, then raises."""

    error: BaseException | None = None

    def run(self, command: Command, out: TextIO, err: TextIO) -> None:
        print("text", file=out)
        if self.error is not None:
            raise self.error


def call(monkeypatch: pytest.MonkeyPatch, error: BaseException | None) -> tuple[int, str, str]:
    def found(name: str) -> ModuleType | Fake:
        assert name == "poot.cli.devices"
        return Fake(error)

    monkeypatch.setattr(MAIN.importlib, "import_module", found)
    out, err = io.StringIO(), io.StringIO()
    return exported(["devices"], out, err), out.getvalue(), err.getvalue()


def test_main_is_what_the_package_exports():
    assert exported is MAIN.main


def test_a_command_that_ends_well_returns_0(monkeypatch: pytest.MonkeyPatch):
    assert call(monkeypatch, None) == (0, "text\n", "")


def test_an_error_of_poot_is_one_message_and_2(monkeypatch: pytest.MonkeyPatch):
    code, out, err = call(monkeypatch, FormatError("m.gguf: is truncated"))
    assert (code, out, err) == (2, "text\n", "poot: m.gguf: is truncated\n")


def test_an_interrupt_returns_130(monkeypatch: pytest.MonkeyPatch):
    assert call(monkeypatch, KeyboardInterrupt())[0] == 130


def test_a_reader_that_leaves_is_no_error(monkeypatch: pytest.MonkeyPatch):
    assert call(monkeypatch, BrokenPipeError())[::2] == (0, "")


def test_an_error_that_poot_does_not_know_is_a_traceback(monkeypatch: pytest.MonkeyPatch):
    with pytest.raises(ZeroDivisionError):
        call(monkeypatch, ZeroDivisionError())


@pytest.mark.parametrize("library", ["gguf", "tokenizers", "jinja2"])
def test_a_missing_library_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch, library: str):
    def absent(name: str) -> ModuleType:
        raise ModuleNotFoundError(f"No module named {library!r}", name=library)

    monkeypatch.setattr(MAIN.importlib, "import_module", absent)
    err = io.StringIO()
    assert exported(["devices"], io.StringIO(), err) == 2
    assert f"needs the library {library}; pip install 'poot[llm]'" in err.getvalue()


def test_a_missing_module_of_poot_is_a_bug_and_not_hidden(monkeypatch: pytest.MonkeyPatch):
    def absent(name: str) -> ModuleType:
        raise ModuleNotFoundError("No module named 'poot.lost'", name="poot.lost")

    monkeypatch.setattr(MAIN.importlib, "import_module", absent)
    with pytest.raises(ModuleNotFoundError):
        exported(["devices"], io.StringIO(), io.StringIO())
