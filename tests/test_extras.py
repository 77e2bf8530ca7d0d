"""A missing library is one typed error, wherever it is asked for."""

from __future__ import annotations

import importlib
import re
import subprocess
import sys
import tomllib

import pytest

from poot.errors import MissingExtra, PootError
from poot.extras import EXTRAS, library, refuse_missing
from tests.support.sources import ROOT

DECLARED = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]

ABSENT = """
import importlib.abc, sys

class Absent(importlib.abc.MetaPathFinder):
    library = ""

    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == self.library:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Absent())
import poot
"""
# What a module imports before what it lacks stays imported: those that import least come first.
ASKED = (
    ("jax", "jax", "poot.from_jax(lambda x: x, 1)"),
    ("torch", "torch", "import poot.torch"),
    ("jinja2", "llm", "import poot.llm.chat"),
    ("gguf", "llm", "import poot.llm.gguf_file"),
    ("tokenizers", "llm", "import poot.llm.tokenizer"),
    ("tokenizers", "llm", "import poot.llm.json_tokenizer"),
    ("safetensors", "llm", "import poot.llm.adapters"),
    ("fastapi", "serve", "import poot.llm.server.app"),
)


def test_each_library_has_an_extra_that_brings_it():
    brought = {name: {re.split(r"[^\w-]", need)[0] for need in needs}
               for name, needs in DECLARED.items()}  # fmt: skip
    of_others = {"starlette", "pydantic"}  # fastapi's own
    assert [n for n, e in EXTRAS.items() if n not in brought[e] | of_others] == []


def test_a_library_that_is_not_there_is_named_with_its_extra():
    """In one process of its own, where each library in turn can't be imported."""
    text = ABSENT
    for name, _, use in ASKED:
        text += f"""
Absent.library = {name!r}
try:
    {use}
except poot.errors.MissingExtra as e:
    print(e.message)
"""
    command = [sys.executable, "-c", text]
    done = subprocess.run(command, cwd=ROOT / "src", capture_output=True, text=True, check=False)
    said = done.stdout.splitlines()
    assert len(said) == len(ASKED), done.stderr
    for line, (name, extra, _) in zip(said, ASKED, strict=True):
        assert line.endswith(f" needs the library {name}; pip install 'poot[{extra}]'")


def test_an_exported_program_needs_torch(monkeypatch):
    import_module = importlib.import_module

    def absent(name):
        if name.startswith("torch"):
            raise ModuleNotFoundError("No module named 'torch'", name="torch")
        return import_module(name)

    monkeypatch.setattr("importlib.import_module", absent)
    with pytest.raises(MissingExtra, match=r"from_torch needs the library torch; pip .*\[torch\]"):
        library("torch.export", "from_torch")


def test_it_is_an_error_of_poot_and_an_import_error():
    error = MissingExtra("words")
    assert isinstance(error, PootError)
    assert isinstance(error, ImportError)
    assert str(error) == error.message == "words"


def test_a_module_that_is_of_no_extra_is_missing_as_itself():
    error = ModuleNotFoundError("No module named 'lost'", name="lost")
    with pytest.raises(ModuleNotFoundError, match="lost") as e:
        refuse_missing(error, "x")
    assert e.value is error
    with pytest.raises(ModuleNotFoundError, match=r"poot\.lost"):
        library("poot.lost", "x")
