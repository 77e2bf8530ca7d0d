"""PyPI's `vulkan` module, which has no types, or the reason that it isn't there."""

from __future__ import annotations

import importlib
from typing import Any


def load() -> tuple[object, str]:
    """The module and an empty reason, or None and what to install."""
    try:
        return importlib.import_module("vulkan"), ""
    except ImportError as e:
        return None, f"the Python package `vulkan` is not there ({e}): pip install 'poot[vulkan]'"
    except OSError:
        return None, "the Vulkan loader libvulkan.so.1 is not there: apt-get install libvulkan1"


_FOUND = load()
vk: Any = _FOUND[0]
MISSING = _FOUND[1]
