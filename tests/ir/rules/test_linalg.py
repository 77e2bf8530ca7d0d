from __future__ import annotations

import pytest

from tests.support.rules import refused, typed


@pytest.mark.parametrize(
    "a, b, out",
    [
        ("f32[2,3]", "f32[3,5]", "f32[2,5]"),
        ("f16[7,2,3]", "f16[3,5]", "f16[7,2,5]"),
        ("bf16[4,1,2,3]", "bf16[6,3,5]", "bf16[4,6,2,5]"),
        ("f32[0,3]", "f32[3,0]", "f32[0,0]"),
        ("f32[2,0]", "f32[0,5]", "f32[2,5]"),
    ],
)
def test_matmul_contracts_the_inner_axes_and_broadcasts_the_batch(a, b, out):
    assert typed("matmul", a, b) == out


def test_matmul_refuses_what_does_not_multiply():
    refused("columns in a as rows in b", "matmul", "f32[2,3]", "f32[4,5]")
    refused("float operands of one dtype", "matmul", "f32[2,3]", "f16[3,5]")
    refused("float operands", "matmul", "i32[2,3]", "i32[3,5]")
    refused("two matrices", "matmul", "f32[3]", "f32[3,5]")
    refused("shapes that broadcast", "matmul", "f32[2,2,3]", "f32[3,3,5]")
    refused("needs 2 operands", "matmul", "f32[2,3]")
