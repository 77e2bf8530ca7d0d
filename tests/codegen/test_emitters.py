"""Each target has its emitter, and what none can do is refused by name."""

from dataclasses import replace

import pytest

from poot.codegen.emitters import EMITTERS, emit
from poot.codegen.kir.build import I32, KernelBuilder
from poot.codegen.kir.nodes import Kernel
from poot.errors import CapabilityError
from poot.limits import PROFILES, profile


def counting(trips: int) -> Kernel:
    k = KernelBuilder("count", threads=1)
    k.param("y", "i32", 1, "w")
    n = k.var(k.lit(0, I32))
    with k.for_(0, trips):
        k.set(n, k.copy(n) + 1)
    k.store("y", 0, k.copy(n))
    return k.kernel()


def test_each_profile_but_the_oracles_has_an_emitter():
    assert {p.target for p in PROFILES.values()} - {"oracle"} == set(EMITTERS)


@pytest.mark.parametrize("name", ["h200", "mi300x", "webgpu-baseline", "cpu-avx2"])
def test_code_is_of_its_target_with_text_binary_and_key(name: str):
    code = emit(counting(3), profile(name))
    assert code.target == profile(name).target
    assert code.name == "count"
    assert code.text
    assert code.binary
    assert len(code.key) == 64
    assert code.kernel == counting(3)


def test_a_target_without_an_emitter_is_refused_with_the_list():
    with pytest.raises(CapabilityError, match="no emitter writes 'metal' yet; emitters: hip, llvm"):
        emit(counting(3), replace(profile("h200"), target="metal"))


def test_a_loop_that_the_driver_would_cut_short_is_refused_with_both_numbers():
    cut = replace(profile("lavapipe"), loop_trips=100)
    assert emit(counting(99), cut).binary
    with pytest.raises(
        CapabilityError, match=r"count goes round its loops up to 101 times .* 100;"
    ):
        emit(counting(100), cut)
