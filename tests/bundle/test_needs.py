"""What a bundle needs, and who has it."""

from __future__ import annotations

from dataclasses import replace

import pytest

import poot
from poot.bundle.needs import check_needs, lacks, needs_of
from poot.errors import CapabilityError, FormatError, MemoryBudget
from poot.limits import PROFILES
from tests.support.bundles import changed, program, read, whole

pytestmark = pytest.mark.quick
CPU = PROFILES["cpu-avx2"]


def needs(**other):
    made = program()
    return replace(needs_of(made.lists(), made.codes, made.limits), **other)


def test_needs_come_back_as_they_were():
    assert read(whole()).needs == needs()


def test_needs_are_no_more_than_is_used():
    made = needs()
    assert lacks(made, CPU) == []
    assert made.storage_buffers < CPU.storage_buffers
    assert made.workgroup_nbytes < CPU.workgroup_nbytes
    assert made.memory_nbytes == sum(n for _, n in program().lists().spaces)


@pytest.mark.parametrize(
    "there, said",
    [
        (replace(CPU, threads=1), "needs threads 64: it has 1"),
        (replace(CPU, storage_buffers=1), "needs storage_buffers"),
        (replace(CPU, grid=(0, 0, 0)), "groups on axis 0: it takes 0"),
        (replace(CPU, offset_align=256), "multiples of 64: it asks 256"),
        (replace(CPU, has_f16_storage=False), "needs has_f16_storage: it hasn't"),
        (replace(CPU, loop_trips=100), "any number of trips through a loop: it ends one after 100"),
        (PROFILES["lavapipe"], "needs a device that takes llvm: it takes spirv"),
        (replace(CPU, arch="x86-64-v2"), "needs arch 'x86-64-v3': it has 'x86-64-v2'"),
    ],
)
def test_a_mismatch_names_both_sides(there, said):
    with pytest.raises(CapabilityError) as e:
        check_needs(needs(), there, "x.poot")
    assert said in e.value.message
    assert there.name in e.value.message


def test_memory_alone_is_the_budgets_error():
    with pytest.raises(MemoryBudget, match="needs 6016 bytes of device memory: cpu-avx2 has 5000"):
        check_needs(needs(), replace(CPU, memory_nbytes=5000), "x.poot")


def needs_on(profile, source):
    made = poot.compile(source, profile)
    return needs_of(made.lists(), made.codes, made.limits)


def test_features_are_needed_where_kernels_declare_them():
    def plus(dtype):
        return poot.trace(lambda x: x + x, (poot.slot((8,), dtype),))

    assert needs_on("lavapipe", plus("f32")).flags == ()
    assert needs_on("lavapipe", plus("f16")).flags == ("has_f16_storage",)
    assert "has_tensor_maps" not in needs_on("h200", plus("f32")).flags
    assert "counts_residents" not in needs_on("h200", plus("f32")).flags


def test_loops_are_counted_so_that_a_profiles_program_runs_where_they_end_early():
    def total(x):
        return x.sum(axis=1)

    made = needs_on("webgpu-baseline", poot.trace(total, (poot.slot((2, 4096), "f32"),)))
    assert 1 < made.loop_trips < 65535
    lavapipe = PROFILES["lavapipe"]
    assert lacks(made, lavapipe) == []
    assert lacks(replace(made, loop_trips=70000), lavapipe) == [
        "may take up to 70000 trips through a loop: it ends one after 65535"
    ]


@pytest.mark.parametrize(
    "asked, there, runs",
    [
        ("x86-64-v3", "znver4,+sse4.2,+avx,+avx2,+fma,+f16c,+bmi,+bmi2", True),
        ("x86-64-v3", "haswell,+sse4.2,+avx,+avx2,+fma,+f16c,+bmi,-bmi2", False),
        ("x86-64-v3", "x86-64-v4", True),
        ("x86-64-v4", "x86-64-v3", False),
        ("znver4,+avx2", "znver4,+avx2,+fma", True),
        ("znver4,+avx2,+avx512f", "znver4,+avx2,-avx512f", False),
        ("znver4,+avx2", "icelake-server,+avx2", False),
    ],
)
def test_code_for_a_processor_runs_where_its_features_are(asked, there, runs):
    assert (lacks(needs(arch=asked), replace(CPU, arch=there)) == []) == runs


@pytest.mark.parametrize(
    "asked, there, runs",
    [("sm_80", "sm_90a", True), ("sm_90a", "sm_90a", True), ("sm_90a", "sm_100", False),
     ("sm_90", "sm_80", False), ("sm_x", "sm_90", False), ("²", "sm_90", False)],
)  # fmt: skip
def test_ptx_runs_on_what_came_after_but_for_a_letters(asked, there, runs):
    made = needs(target="ptx", arch=asked, subgroup=32, offset_align=256)
    assert (lacks(made, replace(PROFILES["h200"], arch=there)) == []) == runs


def test_subgroups_matter_where_the_device_has_its_own():
    made = needs(target="spirv", subgroup=16, loop_trips=65535, flags=())
    assert lacks(made, PROFILES["lavapipe"]) == ["needs subgroups of 16: it has 8"]
    assert lacks(needs(subgroup=16), CPU) == []


@pytest.mark.parametrize(
    "change",
    [
        lambda m: m["needs"].update(target="oracle"),
        lambda m: m["needs"].update(flags=["is_software"]),
        lambda m: m["needs"].update(grid=[1]),
        lambda m: m["needs"].update(offset_align=0),
    ],
)
def test_needs_of_another_kind_are_refused(change):
    with pytest.raises(FormatError, match="needs"):
        read(changed(change))
