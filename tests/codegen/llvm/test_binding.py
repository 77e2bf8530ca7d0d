"""llvmlite's face: this machine, object files, code in memory."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys

import pytest

from poot.codegen.llvm.binding import compile_object, host_cpu, load_objects, missing
from tests.support.sources import ROOT


def test_this_machine_has_a_name_and_features():
    name, features = host_cpu()
    assert name
    assert missing() == ""
    assert all(isinstance(v, bool) for v in features.values())


def test_functions_of_several_object_files_are_found_and_run():
    texts = [f"define i32 @f{n}() {{\n  ret i32 {n}\n}}\n" for n in (4, 5)]
    cpu = host_cpu()[0]
    loaded = load_objects([compile_object(cpu, "", t) for t in texts], ["f4", "f5"])
    run = [ctypes.CFUNCTYPE(ctypes.c_int)(loaded.addresses[f"f{n}"])() for n in (4, 5)]
    assert run == [4, 5]


def test_a_text_that_llvm_refuses_is_an_error():
    with pytest.raises(RuntimeError, match="parsing error"):
        compile_object(host_cpu()[0], "", "define i32 @f() { ret float 1.0 }")


SPREAD = """
import ctypes, mmap
from poot.codegen.llvm.binding import compile_object, host_cpu, load_objects

libc, page, nobody = ctypes.CDLL(None), mmap.PAGESIZE, 0
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [
    ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long
]
libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]

def reserve(nbytes):
    return libc.mmap(None, nbytes, nobody, 0x4022, -1, 0)  # private, anonymous, not counted

def fill(down_to):
    for pages in (4096, 512, 64, 8, 1):
        while (at := reserve(pages * page)) > down_to:
            pass
        libc.munmap(at, pages * page)

lines = [
    f" %x{n} = fmul double %x{n - 1}, {n}.5\\n store volatile double %x{n}, ptr %p"
    for n in range(1, 400)
]
text = "define void @f(ptr %p) {\\n %x0 = load double, ptr %p\\n" + "\\n".join(lines)
made = compile_object(host_cpu()[0], "", text + "\\n ret void\\n}\\n")
starts = [int(x.split("-")[0], 16) for x in open("/proc/self/maps")]
probe = reserve(page)
fill(min(x for x in starts if x > probe - probe // 16))  # not where the program itself lies
hole = reserve(3 * page)
block = reserve(4 << 30)
fill(block)
libc.munmap(hole + page, page)
loaded = load_objects([made], ["f"])
value = ctypes.c_double(0.0)
ctypes.CFUNCTYPE(None, ctypes.c_void_p)(loaded.addresses["f"])(ctypes.addressof(value))
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="lays out memory by Linux's mmap")
def test_code_and_its_constants_lie_together_where_memory_is_in_pieces():
    """One page is free above a block of 4 GiB, all else below it: the constants would fit there,
    the code does not."""
    environ = os.environ | {"PYTHONPATH": str(ROOT / "src")}
    command = [sys.executable, "-W", "ignore", "-c", SPREAD]
    done = subprocess.run(command, capture_output=True, check=False, timeout=60, env=environ)
    assert done.returncode == 0, done.stderr.decode()[-2000:]
