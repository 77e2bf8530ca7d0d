"""Typing rules, asked in text: `typed("add", "f32[2]", "f32[1]")` is `"f32[2]"`."""

from __future__ import annotations

import re

import pytest

from poot.errors import TypeRuleError
from poot.ir.graph import TensorType
from poot.ir.ops import out_types


def tensor(text: str) -> TensorType:
    """f32[2,3] as a TensorType."""
    match = re.fullmatch(r"(\w+)\[([\d,]*)\]", text)
    assert match, text
    return TensorType(match[1], tuple(int(n) for n in match[2].split(",") if n))


def typed(op: str, *ins: str, **attrs: object) -> str:
    """The types of an op's outs, separated by a blank."""
    frozen = tuple(sorted(attrs.items()))
    return " ".join(map(str, out_types(op, tuple(map(tensor, ins)), frozen)))


def refused(words: str, op: str, *ins: str, **attrs: object) -> None:
    """Asserts that the rule refuses, names the op first and says `words`."""
    with pytest.raises(TypeRuleError) as e:
        typed(op, *ins, **attrs)
    assert e.value.message.startswith(f"{op} ")
    assert words in e.value.message
