"""HIP texts as programs with a thread a lane, under a sanitizer: races between lanes (thread), and
accesses outside of buffers and workgroup arrays (address)."""

from __future__ import annotations

import shutil
import struct
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from poot.codegen.code import Code
from tests.support.gpu import array_form, memory_form
from tests.support.hip.gxx import FLAGS, INCLUDE, build
from tests.support.hip.texts import joined, own_name

_MAIN = r"""
// What a launch is given: grid, then of each argument its bytes and whether it is a buffer.
static char* take(FILE* from, unsigned nbytes) {
  char* made = (char*)malloc(nbytes);  // aligned to 16
  if (!made || fread(made, 1, nbytes, from) != nbytes) exit(6);
  return made;
}
int main(int, char** words) {
  const int chosen = atoi(words[1]);
  FILE* from = fopen(words[2], "rb");
  unsigned head[4];
  if (!from || fread(head, 4, 4, from) != 4) return 6;
  gridDim = {head[0], head[1], head[2]};
  static void* args[256];
  static char* buffers[256];
  static unsigned sizes[256];
  for (unsigned n = 0; n < head[3]; ++n) {
    unsigned row[2];
    if (fread(row, 4, 2, from) != 2) return 6;
    sizes[n] = row[1] ? row[0] : 0;
    buffers[n] = take(from, row[0]);
    args[n] = row[1] ? (void*)&buffers[n] : (void*)buffers[n];
  }
  switch (chosen) {
%s
  }
  FILE* to = fopen(words[3], "wb");
  for (unsigned n = 0; n < head[3]; ++n) fwrite(buffers[n], 1, sizes[n], to);
  return fclose(to);
}
"""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a run left: arrays by parameter name where it ended well, and what it said."""

    arrays: dict[str, np.ndarray]
    said: str
    is_clean: bool


@dataclass(frozen=True, slots=True)
class Programs:
    """One executable of several kernels."""

    path: Path
    codes: tuple[Code, ...]

    def run(
        self,
        at: int,
        arrays: Mapping[str, np.ndarray],
        grid: tuple[int, int, int] = (1, 1, 1),
        imms: Sequence[int | float] = (),
        timeout: float = 60.0,
    ) -> Outcome:
        """Runs kernel `at`. A run that doesn't end in time is not clean."""
        kernel = self.codes[at].kernel
        with tempfile.TemporaryDirectory(prefix="poot-lanes-") as folder:
            given, left = Path(folder) / "in", Path(folder) / "out"
            given.write_bytes(_arguments(self.codes[at], arrays, grid, imms))
            command = [str(self.path), str(at), str(given), str(left)]
            try:
                done = _run(command, timeout)
            except subprocess.TimeoutExpired:
                return Outcome({}, "its lanes wait for one another for ever", False)
            said = done.stderr + done.stdout
            out: dict[str, np.ndarray] = {}
            if left.exists():
                raw, start = np.frombuffer(left.read_bytes(), np.uint8), 0
                for p in kernel.params:
                    nbytes = _form(arrays, p.name, p.dtype, p.elems).size
                    out[p.name] = array_form(raw[start : start + nbytes], p.dtype, p.elems)
                    start += nbytes
            return Outcome(out, said, done.returncode == 0 and not said)


def _run(command: list[str], timeout: float) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(command, capture_output=True, text=True, timeout=timeout, check=False)
    if "unexpected memory mapping" in done.stderr and shutil.which("setarch"):
        # A sanitizer of this age can't stand the addresses that newer kernels choose.
        command = ["setarch", "-R", *command]
        done = subprocess.run(command, capture_output=True, text=True, timeout=timeout, check=False)
    return done


def _form(arrays: Mapping[str, np.ndarray], name: str, dtype: str, elems: int) -> np.ndarray:
    if name in arrays:
        return memory_form(arrays[name])
    return memory_form(array_form(np.zeros(elems * 8 + 8, np.uint8), dtype, elems))


def _arguments(
    code: Code,
    arrays: Mapping[str, np.ndarray],
    grid: tuple[int, int, int],
    imms: Sequence[int | float],
) -> bytes:
    kernel = code.kernel
    parts = [struct.pack("<4I", *grid, len(kernel.params) + len(kernel.imms))]
    for p in kernel.params:
        raw = _form(arrays, p.name, p.dtype, p.elems)
        parts += [struct.pack("<2I", raw.size, 1), raw.tobytes()]
    letters = {"i32": "i", "u32": "I", "f32": "f"}
    for imm, value in zip(kernel.imms, imms, strict=True):
        parts += [struct.pack("<2I", 4, 0), struct.pack(f"<{letters[imm.dtype]}", value)]
    return b"".join(parts)


def programs(codes: Sequence[Code], wave: int, sanitizer: str) -> Programs:
    """The kernels as one program under "thread" or "address,undefined"."""
    parts, cases = [joined(codes, f'"{INCLUDE}/threads/hip/hip_runtime.h"')], list[str]()
    for n, code in enumerate(codes):
        parts.append(f"POOT_EXPORT({n}, poot_text_{n}::{own_name(n)})")
        start, stop = "0", "0"
        if code.kernel.shared:
            parts.append(f"POOT_EXPORT_SHARED({n})")
            start, stop = f"__start_poot_shared_{n}", f"__stop_poot_shared_{n}"
        threads = code.kernel.threads
        run = f"poot::run(poot_call_{n}, args, {threads}, {wave}, {start}, {stop})"
        cases.append(f"    case {n}: {run}; break;")
    parts.append(_MAIN % "\n".join(cases))
    flags = [f for f in FLAGS if f != "-march=native"]
    options = (f"-fsanitize={sanitizer}", "-fno-sanitize-recover=undefined", "-g1", "-pthread")
    return Programs(build("\n".join(parts), *options, flags=flags), tuple(codes))
