"""The fixed list of steps under HIP's own headers: compiled by hiprtc through poot's own calls of
it, as on a user's machine at load."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.suites.test_hip_code_objects import PARTS, check_facts, codes_of, limits_of
from tests.support.hip.code_objects import facts
from tests.support.hip.hiprtc_child import compile_all
from tests.support.hip.planted import rotate
from tests.support.hip.texts import joined, own_name

# The one architecture of the three that Debian's compiler knows.
ARCH = "gfx90a"


def test_each_step_compiles_under_hips_own_headers(tmp_path: Path):
    limits = limits_of(ARCH)
    parts = [codes_of(limits, part) for part in range(PARTS)]
    texts = {f"part{n}": joined(codes, None) for n, codes in enumerate(parts)}
    made = compile_all(texts, ARCH, tmp_path)
    for codes, binary in zip(parts, made.values(), strict=True):
        said = facts(binary)
        assert len(said) == len(codes) > 10
        for n, code in enumerate(codes):
            check_facts(said[own_name(n)], code, limits)


def test_a_kernel_compiles_as_it_is_loaded(tmp_path: Path):
    limits = limits_of(ARCH)
    code = rotate(limits)
    made = compile_all({"rotate": code.binary.decode()}, ARCH, tmp_path)
    check_facts(facts(made["rotate"])["poot_rotate"], code, limits)


def test_a_text_that_is_no_cpp_is_refused_by_kernel_name(tmp_path: Path):
    text = rotate(limits_of(ARCH)).text.replace("__syncthreads();", "nonsense();")
    with pytest.raises(AssertionError) as caught:
        compile_all({"rotate": text}, ARCH, tmp_path)
    assert "LaunchError: kernel rotate: hiprtcCompileProgram" in str(caught.value)
    assert "nonsense" in str(caught.value)
