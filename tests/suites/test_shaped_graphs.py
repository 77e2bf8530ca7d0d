"""Random graphs of changing shapes on every target: each compiles whole, or is refused with the op,
the values, the user's line and a remedy, and gives what the oracle gives."""

from __future__ import annotations

import re
from random import Random

import pytest

from poot.api import Program, compile
from poot.errors import DonationError
from poot.ir.graph import Graph
from poot.ir.verify import verify
from poot.oracle import run
from tests.support.everywhere import compile_on, on, run_program
from tests.support.shaped import PRODUCTS, ROWS, shaped_graph
from tests.support.shaper import FLOATS, assert_agrees, shaped_inputs

QUICK = 10
PROFILES_ONLY = ("h200", "mi300x", "rdna3")
FUZZ = 1500


def drawn(seed: int) -> Graph:
    """One graph in five is of rows and groups of them alone, one of products with their prologues
    and epilogues, one has narrow floats, one many steps, one wide values."""
    rng = Random(seed)
    match seed % 5:
        case 0:
            return shaped_graph(rng, steps=4, only=ROWS)
        case 1:
            return shaped_graph(rng, steps=6, only=PRODUCTS)
        case 2:
            return shaped_graph(rng, steps=10, dtypes=FLOATS)
        case 3:
            return shaped_graph(rng, steps=20)
        case _:
            return shaped_graph(rng, steps=4, only=PRODUCTS, is_wide=True)


def compiled(graph: Graph, target: str) -> Program | None:
    """The program, no step of which falls apart; None where the graph is refused for the one reason
    that it may be: a State that is written in place and read later."""
    try:
        program = (
            compile(graph, target, cache=False)
            if target in PROFILES_ONLY
            else compile_on(target, graph)
        )
    except DonationError as e:
        need_four_facts(e)
        return None
    (entry,) = program.entries.values()
    assert [note for r in entry.reports if r.name == "apart" for note in r.notes] == []
    return program


def need_four_facts(e: DonationError) -> None:
    """The rule, the values, the remedy and the user's line."""
    found = re.fullmatch(
        r"State v\d+ \w+\[.*\] is updated in place, but .* reads its old value later; "
        r"read it before the update, or keep a copy",
        e.message,
    )
    assert found, e.message
    assert e.loc.startswith("shaped.py:")


def check(seed: int, target: str) -> None:
    graph = drawn(seed)
    program = compiled(graph, target)
    if program is not None:
        feed = shaped_inputs(graph, seed)
        assert_agrees(graph, run(graph, feed), run_program(program, feed))


def test_a_seed_gives_one_graph_that_verifies():
    for seed in range(40):
        graph = drawn(seed)
        verify(graph)
        assert graph == drawn(seed)


@on()
def test_random_shapes_agree(target: str):
    for seed in range(QUICK):
        check(seed, target)


@pytest.mark.parametrize("name", PROFILES_ONLY)
def test_random_shapes_compile_for(name: str):
    for seed in range(100, 100 + QUICK):
        compiled(drawn(seed), name)


@pytest.mark.fuzz
@pytest.mark.timeout(3600)
@on()
def test_many_random_shapes_agree(target: str):
    for seed in range(1000, 1000 + FUZZ):
        check(seed, target)
