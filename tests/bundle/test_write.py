"""What a bundle holds."""

from __future__ import annotations

import json

import pytest

import poot
from poot.bundle.write import EXPLAIN, MANIFEST, bundle_members
from poot.errors import CapabilityError
from poot.limits import PROFILES
from tests.support.bundles import graph, members

pytestmark = pytest.mark.quick


def test_kernels_are_plain_files_named_for_people():
    names = [n for n in members() if n not in (MANIFEST, EXPLAIN)]
    assert names[0] == "kernels/0.elementwise.o"
    assert "consts/consts.bin" in names
    assert all(members()[n].startswith(b"\x7fELF") for n in names if n.endswith(".o"))


@pytest.mark.parametrize(
    "profile, suffix, start",
    [("lavapipe", ".spv", b"\x03\x02\x23\x07"), ("h200", ".ptx", b"//"), ("mi300x", ".hip", b"")],
)
def test_each_target_has_its_files(profile, suffix, start):
    made = bundle_members(poot.compile(graph(), profile))
    kernels = {n: d for n, d in made.items() if n.startswith("kernels/")}
    assert all(n.endswith(suffix) for n in kernels)
    assert all(d.startswith(start) or d.startswith(b".version") for d in kernels.values())
    head = json.loads(made[MANIFEST])
    assert head["needs"]["target"] == PROFILES[profile].target


def test_a_program_makes_the_same_bytes_twice():
    assert bundle_members(poot.compile(graph(), "cpu-avx2", cache=False)) == dict(members())


def test_the_oracles_programs_have_nothing_to_save():
    with pytest.raises(CapabilityError, match="no kernels to save"):
        bundle_members(poot.compile(graph(), "oracle"))
