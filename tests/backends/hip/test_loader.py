"""The bindings are found without ROCm, or it is said what to install."""

from __future__ import annotations

import importlib

import pytest

from poot.backends.hip import loader


def test_the_bindings_import_without_rocm():
    runtime, compiler, reason = loader.load()
    assert reason == ""
    assert hasattr(runtime, "hipInit")
    assert hasattr(compiler, "hiprtcCompileProgram")


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch):
    def missing(name: str) -> object:
        raise ModuleNotFoundError(f"No module named {name!r}")

    monkeypatch.setattr(importlib, "import_module", missing)
    runtime, compiler, reason = loader.load()
    assert runtime is compiler is None
    assert "`hip-python` is not there" in reason
    assert "pip install 'poot[hip]'" in reason
