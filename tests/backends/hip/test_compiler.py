"""Without hiprtc there is a reason. What it compiles is tested over its stand-in (test_device.py)
and over Debian's own (tests/suites/test_hip_headers.py)."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from poot.backends.hip import compiler
from poot.cache import DiskCache
from poot.errors import BackendUnavailable


class Result:
    HIPRTC_SUCCESS = 0


def test_without_the_bindings_there_is_a_reason(monkeypatch):
    monkeypatch.setattr(compiler, "MISSING", "no bindings: install them")
    with pytest.raises(BackendUnavailable, match="no bindings"):
        compiler.compiler_version()


def test_without_the_library_it_is_said_what_to_install(monkeypatch):
    def missing() -> object:
        raise RuntimeError("failed to dlopen 'libhiprtc.so'")

    monkeypatch.setattr(compiler, "MISSING", "")
    monkeypatch.setattr(compiler, "hiprtc", SimpleNamespace(hiprtcVersion=missing))
    with pytest.raises(BackendUnavailable, match=r"hiprtc is not there .*install ROCm"):
        compiler.compile_text("", "k", "gfx942", None)


def test_a_kept_code_object_needs_no_compile(monkeypatch, tmp_path):
    made: list[str] = []

    def compile_one(text: str, name: str, options: tuple[str, ...]) -> bytes:
        made.append(options[0])
        return b"code of " + options[0].encode()

    monkeypatch.setattr(compiler, "MISSING", "")
    versions = [(Result.HIPRTC_SUCCESS, 6, 4)]
    fake = SimpleNamespace(hiprtcVersion=lambda: versions[-1], hiprtcResult=Result)
    monkeypatch.setattr(compiler, "hiprtc", fake)
    monkeypatch.setattr(compiler, "_compile", compile_one)
    cache = DiskCache(tmp_path)
    for _ in range(2):
        got = compiler.compile_text("text", "k", "gfx942", cache)
        assert got == b"code of --offload-arch=gfx942"
    assert len(made) == 1
    compiler.compile_text("text", "k", "gfx90a", cache)
    compiler.compile_text("other", "k", "gfx942", cache)
    assert len(made) == 3
    versions.append((Result.HIPRTC_SUCCESS, 7, 0))
    compiler.compile_text("text", "k", "gfx942", cache)
    assert len(made) == 4
