"""Checks one room of rules by itself, text in and text out."""

from __future__ import annotations

from collections.abc import Callable

from poot.passes.engine import Rule, apply
from tests.support.check import check_pass


def checker(*rules: Rule) -> Callable[[str, str], None]:
    """A check that rules turn the eqns of one text into those of another, bit for bit."""

    def check(before: str, after: str) -> None:
        check_pass(lambda graph: apply(rules, graph), before, after)

    return check


def stays(*rules: Rule) -> Callable[[str], None]:
    """A check that rules leave a text as it is."""
    check = checker(*rules)
    return lambda text: check(text, text)
