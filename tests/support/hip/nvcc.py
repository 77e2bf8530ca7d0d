"""HIP texts compiled for an NVIDIA GPU by nvcc, under a header that spells HIP's words in CUDA's.

Each text is one cubin. `Cubins` compiles many side by side, and gives each to the stand-in for
hiprtc as it is asked for.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

INCLUDE = Path(__file__).parent / "include/nvidia"
# Workgroup memory that a kernel may declare without asking the driver for more (CUDA C++
# Programming Guide, technical specifications: static shared memory).
SHARED_NBYTES = 48 << 10
FLAGS = ("-std=c++17", "--fmad=false", "-O3", "-diag-suppress", "177")


def find_nvcc() -> str | None:
    return shutil.which("nvcc")


def compile_cubin(text: str, arch: str = "sm_90") -> bytes:
    """The cubin of one text, or of several that are joined. Raises what nvcc said."""
    nvcc = find_nvcc()
    assert nvcc is not None, "nvcc is not there"
    with tempfile.TemporaryDirectory(prefix="poot-nvcc-") as folder:
        source, made = Path(folder) / "text.cu", Path(folder) / "text.cubin"
        source.write_text(text)
        command = [nvcc, "-cubin", f"-arch={arch}", "-x", "cu", *FLAGS, f"-I{INCLUDE}",
                   "-o", str(made), str(source)]  # fmt: skip
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr[:8000]
        return made.read_bytes()


class Cubins:
    """Cubins by text, kept for a run. Without workers nothing is compiled ahead."""

    def __init__(self, workers: int) -> None:
        self._made: dict[str, bytes] = {}
        self._workers = workers

    def ahead(self, texts: Iterable[str]) -> None:
        """Compiles what isn't there yet, side by side."""
        if not self._workers:
            return
        fresh = list(dict.fromkeys(t for t in texts if t not in self._made))
        with ThreadPoolExecutor(self._workers) as pool:
            self._made |= dict(zip(fresh, pool.map(compile_cubin, fresh), strict=True))

    def compile(self, text: str, name: str, options: tuple[str, ...]) -> bytes:
        """What the stand-in for hiprtc calls."""
        if text not in self._made:
            self._made[text] = compile_cubin(text)
        return self._made[text]

    @property
    def count(self) -> int:
        return len(self._made)
