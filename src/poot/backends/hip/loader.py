"""hip-python's modules, or the reason that they aren't there."""

from __future__ import annotations

import importlib
from typing import Any


def load() -> tuple[object, object, str]:
    """The bindings of the runtime and of its compiler and an empty reason, or what to install. They
    import without ROCm, which they look for at the first call."""
    try:
        runtime = importlib.import_module("rocm.bindings.hip")
        compiler = importlib.import_module("rocm.bindings.hiprtc")
    except ImportError as e:
        reason = f"the Python package `hip-python` is not there ({e}): pip install 'poot[hip]'"
        return None, None, reason
    return runtime, compiler, ""


_FOUND = load()
hip: Any = _FOUND[0]
hiprtc: Any = _FOUND[1]
MISSING = _FOUND[2]
