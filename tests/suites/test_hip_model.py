"""SmolLM2's kernels as HIP: code objects for three cards, and one layer run by fibers."""

from __future__ import annotations

import pytest

from poot.api import compile
from tests.suites.test_hip_code_objects import check_facts, limits_of
from tests.suites.test_models import graphs, logits, reference
from tests.support.hip.code_objects import ARCHS, code_object, facts
from tests.support.hip.texts import own_name
from tests.support.tol import assert_within


@pytest.mark.parametrize("arch", ARCHS)
def test_the_models_kernels_compile_for_amd(arch: str):
    limits = limits_of(arch)
    program = compile(graphs(None, (1, 64)), target=limits, cache=False)
    codes = list({code.binary: code for code in program.codes}.values())
    said = facts(code_object(codes, arch))
    assert len(said) == len(codes) > 10
    for n, code in enumerate(codes):
        check_facts(said[own_name(n)], code, limits)


@pytest.mark.parametrize("target", ["hip-fibers-32", "hip-fibers-64"])
def test_one_layer_agrees_with_the_oracle_by_fibers(target: str):
    got = logits(target, 1, [16, 1, 1], "file")
    assert_within(got, reference(1)[:18], "logits")
