"""Compiles HIP texts with the hiprtc of Debian's libamdhip64-5, under HIP's own headers, in a
process of its own: `python -m tests.support.hip.hiprtc_child ARCH FOLDER` makes FOLDER/name.co of
each FOLDER/name.hip.

That library aborts its process on architectures it doesn't know, and the bindings look for it under
names that Debian's package doesn't have.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from poot.backends.hip.compiler import compile_text
from tests.support.sources import ROOT

PLACES = ("/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/usr/lib")
LIBRARY = "libamdhip64.so.5"


def library() -> Path:
    """Where Debian's runtime lies, or a skip that says what is missing."""
    for place in PLACES:
        path = Path(place) / LIBRARY
        if path.exists():
            return path
    pytest.skip(f"{LIBRARY} is not there: apt-get install libamdhip64-5 libhiprtc-builtins5")


def compile_all(texts: Mapping[str, str], arch: str, folder: Path) -> dict[str, bytes]:
    """Code objects by name. Raises what the compiler said."""
    runtime = library()
    rtc = runtime.with_name("libhiprtc.so.5")  # later packages have the compiler apart
    (folder / "libamdhip64.so").symlink_to(runtime)
    (folder / "libhiprtc.so").symlink_to(rtc if rtc.exists() else runtime)
    for name, text in texts.items():
        (folder / f"{name}.hip").write_text(text)
    paths = os.pathsep.join((str(ROOT / "src"), str(ROOT)))
    env = {**os.environ, "PYTHONPATH": paths, "LD_LIBRARY_PATH": str(folder)}
    done = subprocess.run(
        [sys.executable, "-m", __name__, arch, str(folder)],
        cwd=ROOT, env=env, capture_output=True, text=True, timeout=240, check=False,
    )  # fmt: skip
    assert done.returncode == 0, (done.stderr + done.stdout)[-8000:]
    return {name: (folder / f"{name}.co").read_bytes() for name in texts}


def main(arch: str, folder: Path) -> None:
    for path in sorted(folder.glob("*.hip")):
        made = compile_text(path.read_text(), path.stem, arch, None)
        path.with_suffix(".co").write_bytes(made)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
