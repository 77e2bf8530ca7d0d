"""Object files behind their digest, and assembly for people."""

from __future__ import annotations

import pytest

from poot.codegen.llvm import compile as llvm_compile
from poot.codegen.llvm.compile import assembly, compile_text, object_file
from poot.errors import BackendUnavailable

TEXT = "define i32 @three() {\n  ret i32 3\n}\n"


def test_a_text_becomes_an_object_file_that_its_digest_vouches_for():
    binary = compile_text(TEXT, "x86-64-v3")
    found = object_file(binary)
    assert found is not None
    assert found.startswith(b"\x7fELF")
    assert object_file(binary[:-8]) is None
    assert object_file(b"") is None
    assert object_file(binary[:33] + b"\0" + binary[34:]) is None


def test_assembly_is_for_the_processor_asked_for():
    text = "define float @f(float %a, float %b) {\n  %c = fadd float %a, %b\n  ret float %c\n}\n"
    assert "vaddss" in assembly(text, "x86-64-v3,+avx2")


def test_a_missing_llvmlite_says_what_to_install(monkeypatch):
    monkeypatch.setattr(llvm_compile, "missing", lambda: "llvmlite is not there: pip install it")
    with pytest.raises(BackendUnavailable, match="through llvmlite: llvmlite is not there"):
        compile_text(TEXT, "x86-64-v3")
