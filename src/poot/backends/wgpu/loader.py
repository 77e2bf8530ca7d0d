"""wgpu-py, which has few types, or the reason that it isn't there."""

from __future__ import annotations

import importlib
from typing import Any


def load() -> tuple[object, str]:
    """The module and an empty reason, or None and what to install."""
    try:
        return importlib.import_module("wgpu"), ""
    except ImportError as e:
        return None, f"the Python package `wgpu` is not there ({e}): pip install 'poot[wgpu]'"
    except (OSError, RuntimeError) as e:
        return None, f"wgpu's native library can't be loaded: {e}"


_FOUND = load()
wgpu: Any = _FOUND[0]
MISSING = _FOUND[1]
