"""The driver libraries, which have no types, or the reasons that they aren't there."""

from __future__ import annotations

import importlib
from typing import Any

EXTRAS = {"cuda.bindings.driver": "cuda", "pycuda.driver": "pycuda"}


def load(module: str) -> tuple[object, str]:
    """The module and an empty reason, or None and what to install."""
    try:
        return importlib.import_module(module), ""
    except (ImportError, OSError, RuntimeError) as e:
        package = module.split(".driver")[0]
        return None, f"{package} is not there ({e}): pip install 'poot[{EXTRAS[module]}]'"


_BINDINGS, _PYCUDA = load("cuda.bindings.driver"), load("pycuda.driver")
cu: Any = _BINDINGS[0]
drv: Any = _PYCUDA[0]
NO_BINDINGS, NO_PYCUDA = _BINDINGS[1], _PYCUDA[1]
