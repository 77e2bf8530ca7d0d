"""The fixed list of steps as real code objects for AMD GPUs, and what those say of each kernel."""

from __future__ import annotations

from dataclasses import replace

import pytest

from poot.codegen.code import Code
from poot.codegen.emitters import emit
from poot.codegen.gen.lower import lower
from poot.codegen.hip.emit import argument_nbytes
from poot.limits import DeviceLimits, profile
from tests.support.hip.code_objects import ARCHS, KernelFacts, code_object, facts
from tests.support.hip.texts import own_name
from tests.support.requests import CASES

PARTS = 4


def limits_of(arch: str) -> DeviceLimits:
    """The card's profile with this architecture."""
    return replace(profile("mi300x" if ARCHS[arch] == 64 else "rdna3"), arch=arch)


def codes_of(limits: DeviceLimits, part: int) -> list[Code]:
    """Every PARTS-th step's kernels, each text once."""
    codes: dict[str, Code] = {}
    for name in sorted(CASES)[part::PARTS]:
        for call in lower(CASES[name].request(limits), limits).calls:
            code = emit(call.kernel, limits)
            codes.setdefault(code.text, code)
    return list(codes.values())


def check_facts(said: KernelFacts, code: Code, limits: DeviceLimits) -> None:
    """The code object agrees with the kernel as the plan has it."""
    kernel = code.kernel
    kinds = ["global_buffer"] * len(kernel.params) + ["by_value"] * len(kernel.imms)
    sizes = [8] * len(kernel.params) + [4] * len(kernel.imms)
    assert [a.kind for a in said.args] == kinds, code.text
    assert [a.nbytes for a in said.args] == sizes
    assert [a.offset for a in said.args] == [sum(sizes[:n]) for n in range(len(sizes))]
    assert sum(sizes) == argument_nbytes(kernel)
    assert said.shared_nbytes == kernel.shared_nbytes, code.text
    assert said.wave == limits.subgroup
    assert said.most_lanes == kernel.threads
    assert (said.private_nbytes, said.spills) == (0, 0), code.text


@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize("arch", ARCHS)
def test_each_step_compiles_for_amd_and_says_what_the_plan_says(arch: str, part: int):
    limits = limits_of(arch)
    codes = codes_of(limits, part)
    said = facts(code_object(codes, arch))
    assert len(said) == len(codes) > 10
    for n, code in enumerate(codes):
        check_facts(said[own_name(n)], code, limits)
