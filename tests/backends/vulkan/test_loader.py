"""What is said where PyPI's package, or the loader's library, is missing."""

from __future__ import annotations

import gc
import importlib

import pytest

from poot.backends.vulkan import driver, loader
from poot.errors import BackendUnavailable


@pytest.mark.parametrize(
    "error, words",
    [
        (ImportError("No module named 'vulkan'"), r"pip install 'poot\[vulkan\]'"),
        (OSError("Cannot find Vulkan SDK version"), "apt-get install libvulkan1"),
    ],
)
def test_a_missing_part_is_named_with_what_to_install(monkeypatch, error, words):
    def fail(name: str) -> None:
        raise error

    gc.collect()  # what other tests left is freed by the library that is about to be missing
    monkeypatch.setattr(importlib, "import_module", fail)
    module, reason = loader.load()
    assert module is None
    monkeypatch.setattr(driver, "vk", None)
    monkeypatch.setattr(driver, "MISSING", reason)
    with pytest.raises(BackendUnavailable, match=words):
        driver.instance()


def test_what_is_there_has_no_reason():
    assert (loader.vk is None) == bool(loader.MISSING)
