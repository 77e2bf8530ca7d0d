"""Libraries that poot's extras bring: a missing one is a typed error that names its extra."""

from __future__ import annotations

import importlib
from types import ModuleType
from typing import NoReturn

from poot.errors import MissingExtra

# The extra that brings each library, as pyproject.toml declares them.
EXTRAS = {
    "gguf": "llm",
    "tokenizers": "llm",
    "jinja2": "llm",
    "safetensors": "llm",
    "fastapi": "serve",
    "starlette": "serve",
    "pydantic": "serve",
    "uvicorn": "serve",
    "torch": "torch",
    "jax": "jax",
}


def library(name: str, who: str) -> ModuleType:
    """A module of one of the libraries. Raises MissingExtra, in the name of `who`."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as e:
        refuse_missing(e, who)


def refuse_missing(error: ModuleNotFoundError, who: str) -> NoReturn:
    """Raises MissingExtra for an import that failed where the library is one of an extra's, and
    the error itself otherwise."""
    root = (error.name or "").partition(".")[0]
    extra = EXTRAS.get(root)
    if extra is None:
        raise error
    remedy = f"pip install 'poot[{extra}]'"
    raise MissingExtra(f"{who} needs the library {root}; {remedy}") from error
