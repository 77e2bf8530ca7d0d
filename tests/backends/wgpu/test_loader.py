"""What is said where wgpu-py, or its native library, is missing."""

from __future__ import annotations

import importlib

import pytest

from poot.backends.wgpu import adapters, loader
from poot.errors import BackendUnavailable


@pytest.mark.parametrize(
    "error, words",
    [
        (ImportError("No module named 'wgpu'"), r"pip install 'poot\[wgpu\]'"),
        (OSError("libwgpu_native.so: cannot open"), "native library can't be loaded"),
        (RuntimeError("no binary for this platform"), "native library can't be loaded"),
    ],
)
def test_a_missing_part_is_named_with_what_to_install(monkeypatch, error, words):
    def fail(name: str) -> None:
        raise error

    monkeypatch.setattr(importlib, "import_module", fail)
    module, reason = loader.load()
    assert module is None
    monkeypatch.setattr(adapters, "wgpu", None)
    monkeypatch.setattr(adapters, "MISSING", reason)
    with pytest.raises(BackendUnavailable, match=words):
        adapters.read_adapters()


def test_what_is_there_has_no_reason():
    assert (loader.wgpu is None) == bool(loader.MISSING)
