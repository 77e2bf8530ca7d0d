from __future__ import annotations

import pytest

from poot.errors import BackendUnavailable
from poot.limits import PROFILES, profile


@pytest.mark.parametrize("name", sorted(PROFILES))
def test_a_profile_is_found_by_its_own_name(name):
    assert profile(name).name == name


@pytest.mark.parametrize("limits", PROFILES.values(), ids=lambda p: p.name)
def test_a_profile_is_one_that_a_device_could_have(limits):
    assert limits.target in ("spirv", "ptx", "hip", "llvm", "oracle")
    assert min(limits.grid) >= 1
    assert limits.threads >= 1
    assert limits.binding_nbytes <= limits.buffer_nbytes
    assert limits.offset_align & (limits.offset_align - 1) == 0
    assert limits.subgroup & (limits.subgroup - 1) == 0


def test_an_unknown_profile_is_refused_and_the_known_ones_named():
    with pytest.raises(BackendUnavailable, match=r"'h300'.*h200.*webgpu-baseline"):
        profile("h300")


def test_limits_print_one_fact_a_line():
    lines = str(profile("webgpu-baseline")).splitlines()
    assert "workgroup_nbytes 16384" in lines
    assert "storage_buffers 8" in lines
