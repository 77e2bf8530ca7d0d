"""A device's facts as limits."""

from __future__ import annotations

from dataclasses import replace

from poot.backends.hip.properties import Properties, facts_of

CARD = Properties(
    name="AMD Instinct MI300X",
    arch="gfx942:sramecc+:xnack-",
    wave=64,
    threads=1024,
    grid=(2147483647, 65535, 65535),
    compute_units=304,
    workgroup_nbytes=65536,
    memory_nbytes=192 << 30,
)


def test_the_architecture_is_planned_without_features_and_compiled_with_them():
    facts = facts_of(1, CARD, "6.4")
    assert facts.limits.arch == "gfx942"
    assert facts.arch == "gfx942:sramecc+:xnack-"
    assert facts.description == "AMD Instinct MI300X (gfx942), HIP 6.4"
    assert facts.limits.name == "hip:1"


def test_a_grid_never_reaches_2_to_the_32_lanes():
    for threads in (64, 256, 1024):
        limits = facts_of(0, replace(CARD, threads=threads), "6.4").limits
        assert limits.grid[0] * threads < 1 << 32
        assert (limits.grid[0] + 1) * threads >= (1 << 32) - threads or limits.grid[0] == 2**31 - 1


def test_the_wave_is_the_devices_own():
    limits = facts_of(0, replace(CARD, wave=32, arch="gfx1100"), "6.4").limits
    assert (limits.subgroup, limits.arch, limits.target) == (32, "gfx1100", "hip")
