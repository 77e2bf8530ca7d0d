"""The disassembly, alone and beside spirv-dis."""

from __future__ import annotations

import re
import shutil
import struct
import subprocess

import pytest

from poot.codegen.kir.build import KernelBuilder
from poot.codegen.spirv.emit import emit
from poot.codegen.spirv.text import disassemble
from poot.codegen.spirv.words import Module
from poot.errors import FormatError
from poot.limits import profile


def axpy() -> bytes:
    k = KernelBuilder("axpy", 64)
    x, y, n = k.param("x", "f32", 64, "r"), k.param("y", "f16", 64, "rw"), k.imm("n")
    total = k.var(0.0)
    with k.for_(0, n):
        k.set(total, k.op("exp2", total) + k.load(x, k.lane()))
    k.store(y, k.lane(), k.cast(total, "f16"))
    return emit(k.kernel(), profile("lavapipe"))


def test_a_module_reads_as_one_instruction_a_line():
    m = Module()
    m.capability("Shader")
    m.put("model", "OpMemoryModel", 0, 1)
    m.put("name", "OpName", m.type("OpTypeInt", 32, 1), "whole")
    assert disassemble(m.binary()) == (
        "; SPIR-V 1.3, ids below 2\n"
        "OpCapability Shader\n"
        "OpMemoryModel 0 1\n"
        'OpName %1 "whole"\n'
        "%1 = OpTypeInt 32 1\n"
    )


def test_spirv_dis_finds_the_same_instructions():
    tool = shutil.which("spirv-dis")
    assert tool is not None, "spirv-dis is not there: apt-get install spirv-tools"
    command = [tool, "--raw-id", "--no-indent", "-"]
    done = subprocess.run(command, input=axpy(), capture_output=True, check=True)
    theirs = [line for line in done.stdout.decode().splitlines() if not line.startswith(";")]
    ours = disassemble(axpy()).splitlines()[1:]
    name = re.compile(r"^(%\d+ = )?(Op\w+)")
    assert [name.match(line)[0] for line in ours] == [name.match(line)[0] for line in theirs]


@pytest.mark.parametrize(
    "binary, words",
    [
        (b"", "0 bytes"),
        (b"\0" * 20, "the first is 0x0"),
        (axpy()[:-1], "bytes"),
        (axpy()[:20] + struct.pack("<I", 1 << 16 | 9999), "no opcode 9999"),
        (axpy()[:20] + struct.pack("<I", 0), "no opcode 0 of 0 words"),
        (axpy()[:-8] + struct.pack("<I", 9 << 16 | 253), "of 9 words"),
    ],
)
def test_other_bytes_are_no_module(binary, words):
    with pytest.raises(FormatError, match=words):
        disassemble(binary)
