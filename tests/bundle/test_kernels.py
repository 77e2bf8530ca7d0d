"""Kernels' signatures out of a manifest."""

from __future__ import annotations

from dataclasses import replace

import pytest

from poot.bundle.fields import Fields
from poot.bundle.kernels import parse_kernel
from poot.errors import FormatError
from tests.support.bundles import manifest_of, program, whole

pytestmark = pytest.mark.quick


def test_each_kernel_comes_back_without_its_body():
    rows = manifest_of(whole())["kernels"]
    got = [parse_kernel(Fields("k", row)) for row in rows]
    assert got == [replace(c.kernel, body=()) for c in program().codes]


@pytest.mark.parametrize(
    "name, value",
    [
        ("threads", 0),
        ("threads", 4096),
        ("subgroup", 0),
        ("name", "a b"),
        ("name", "é"),
        ("shared_nbytes", 1 << 30),
        ("params", [{"name": "x", "dtype": "f64", "elems": 1, "access": "r", "align": 4}]),
        ("params", [{"name": "x", "dtype": "f32", "elems": -1, "access": "r", "align": 4}]),
        ("imms", [{"name": "x", "dtype": "f16"}]),
        ("shared", [{"name": "x", "dtype": "f32", "elems": 1, "align": 0}]),
    ],
)
def test_a_wrong_field_is_refused(name, value):
    row = manifest_of(whole())["kernels"][0] | {name: value}
    with pytest.raises(FormatError):
        parse_kernel(Fields("k", row))
