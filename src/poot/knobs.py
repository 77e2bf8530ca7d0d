"""The environment variables that poot reads: all of them, typed, in one frozen record.

Nothing else in poot reads the environment, and nothing here is a global switch: `knobs()` reads it
anew at each call, and whoever needs a value is handed it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import platformdirs

from poot.errors import KnobError

NAMES: dict[str, str] = {
    "POOT_TARGET": "the target that `auto` stands for; unset: the best found",
    "POOT_CHECK": "1: every compile is validated against its own source, and every plan checked",
    "POOT_DUMP": "a directory that gets the text of every stage of every compile",
    "POOT_CACHE_DIR": "where kernels and programs are kept; unset: the user's cache directory",
    "POOT_THREADS": "threads of the CPU target; unset: one a core",
    "POOT_CUDA_PROVIDER": "cuda-bindings or pycuda; unset: the first that finds a driver",
    "POOT_REQUIRE": "tests only: targets, by commas, that must be there: skips become failures",
}


@dataclass(frozen=True, slots=True)
class Knobs:
    """One reading of the environment. `threads` is 0 where the machine decides."""

    target: str
    check: bool
    dump: Path | None
    cache_dir: Path
    threads: int
    cuda_provider: str
    require: tuple[str, ...]


def knobs(environ: Mapping[str, str] | None = None) -> Knobs:
    """Reads the environment, or the mapping given in its place.

    Raises KnobError on a POOT_ name that isn't in NAMES and on a value that doesn't fit.
    """
    env = os.environ if environ is None else environ
    unknown = sorted(name for name in env if name.startswith("POOT_") and name not in NAMES)
    if unknown:
        known = ", ".join(sorted(NAMES))
        raise KnobError(f"there is no knob {', '.join(unknown)}; the knobs are {known}")
    dump = env.get("POOT_DUMP", "")
    cache = env.get("POOT_CACHE_DIR", "")
    return Knobs(
        target=env.get("POOT_TARGET", ""),
        check=_flag(env, "POOT_CHECK"),
        dump=Path(dump) if dump else None,
        cache_dir=Path(cache) if cache else Path(platformdirs.user_cache_dir("poot", False)),
        threads=_count(env, "POOT_THREADS"),
        cuda_provider=_choice(env, "POOT_CUDA_PROVIDER", ("cuda-bindings", "pycuda")),
        require=_words(env, "POOT_REQUIRE"),
    )


def _flag(env: Mapping[str, str], name: str) -> bool:
    text = env.get(name, "")
    if text not in ("", "0", "1"):
        raise KnobError(f"{name} needs 0 or 1: got {text!r}")
    return text == "1"


def _count(env: Mapping[str, str], name: str) -> int:
    text = env.get(name, "")
    if not text:
        return 0
    if not (text.isascii() and text.isdigit() and 1 <= int(text) <= 4096):
        raise KnobError(f"{name} needs a whole number from 1 to 4096: got {text!r}")
    return int(text)


def _choice(env: Mapping[str, str], name: str, choices: tuple[str, ...]) -> str:
    text = env.get(name, "")
    if text not in ("", *choices):
        raise KnobError(f"{name} needs {' or '.join(choices)}: got {text!r}")
    return text


def _words(env: Mapping[str, str], name: str) -> tuple[str, ...]:
    return tuple(sorted({w.strip() for w in env.get(name, "").split(",")} - {""}))
