"""llvmlite's face: this machine, object files, code in memory."""

from __future__ import annotations

import ctypes

import pytest

from poot.codegen.llvm.binding import compile_object, host_cpu, load_objects, missing


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
