"""HIP texts compiled for the CPU by g++: the fiber runner, libraries of kernels, test programs.

What is compiled is kept in poot's cache under the digest of everything that it depends on.
"""

from __future__ import annotations

import functools
import hashlib
import os
import platform
import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

import pytest

from poot.cache import DiskCache
from poot.codegen.code import Code
from poot.knobs import knobs
from tests.support.hip.texts import joined, own_name

HERE = Path(__file__).parent
INCLUDE = HERE / "include"
# The options of codegen.hip.emit.OPTIONS that g++ has, at a level that compiles quickly.
FLAGS = ("-O1", "-std=c++17", "-fwrapv", "-ffp-contract=off", "-fno-strict-aliasing",
         "-fno-math-errno", "-march=native", "-w")  # fmt: skip
RED_NBYTES = 256  # that no kernel may write behind its workgroup memory
_MEETS = re.compile(r"__syncthreads|wave_barrier|__shfl|__any|__all|__ballot|__builtin_amdgcn_[mw]")


def require_gxx() -> str:
    """The compiler, or a skip that says what is missing."""
    found = shutil.which("g++")
    if found is None:
        pytest.skip("g++ is not there: apt-get install g++")
    return found


@functools.cache
def _surroundings() -> bytes:
    """What a build depends on besides its source: compiler, machine and headers."""
    version = subprocess.run([require_gxx(), "--version"], capture_output=True, check=True).stdout
    flags = Path("/proc/cpuinfo").read_text() if Path("/proc/cpuinfo").exists() else ""
    features = next((row for row in flags.splitlines() if row.startswith(("flags", "Feat"))), "")
    files = sorted((*INCLUDE.rglob("*.h"), *HERE.glob("*.cpp")))
    parts = [version, platform.machine().encode(), features.encode()]
    return b"\0".join([*parts, *(f.read_bytes() for f in files)])


def build(source: str, *options: str, flags: Sequence[str] = FLAGS) -> Path:
    """The file that g++ makes of a source text with these options. Raises what g++ said."""
    head = "\0".join((source, *options, *flags)).encode()
    key = hashlib.sha256(head + _surroundings()).hexdigest()
    out = _folder() / key
    if out.exists():
        return out
    cache = DiskCache(knobs().cache_dir / "tests-gxx")
    made = cache.get(key)
    if made is None:
        made = _compile(source, options, flags)
        cache.put(key, made)
    handle, name = tempfile.mkstemp(dir=_folder())  # several threads may make one file
    with os.fdopen(handle, "wb") as f:
        f.write(made)
    os.chmod(name, 0o755)
    os.replace(name, out)
    return out


@functools.cache
def _holder() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="poot-gxx-")


def _folder() -> Path:
    return Path(_holder().name)


def _compile(source: str, options: Sequence[str], flags: Sequence[str]) -> bytes:
    with tempfile.TemporaryDirectory(prefix="poot-gxx-") as folder:
        text, out = Path(folder) / "text.cpp", Path(folder) / "out"
        text.write_text(source)
        command = [require_gxx(), *flags, f"-I{HERE}", str(text), "-o", str(out), *options]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise AssertionError(done.stderr[:8000])
        return out.read_bytes()


def meets(code: Code) -> bool:
    """Whether lanes of the kernel wait for one another."""
    return _MEETS.search(code.text) is not None


def runner() -> Path:
    """The fiber runner as a library."""
    return build((HERE / "runner.cpp").read_text(), "-shared", "-fPIC", "-Wno-psabi")


def with_red_zones(text: str) -> str:
    """The text with RED_NBYTES more behind each kernel's workgroup memory."""
    return re.sub(r"(__shared__ unsigned char shared\[\d+)\]", rf"\1 + {RED_NBYTES}]", text)


def kernels(codes: Sequence[Code]) -> Path:
    """A library of kernels for the fiber runner, which has to be loaded before it."""
    parts = [with_red_zones(joined(codes, f'"{INCLUDE}/fibers/hip/hip_runtime.h"'))]
    for n, code in enumerate(codes):
        parts.append(f"POOT_EXPORT({n}, poot_text_{n}::{own_name(n)})")
        if code.kernel.shared:
            parts.append(f"POOT_EXPORT_SHARED({n})")
    return build("\n".join(parts) + "\n", "-shared", "-fPIC")
