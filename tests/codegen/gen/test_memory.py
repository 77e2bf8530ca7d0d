"""Cells: which dtypes lie whole in a parameter, and which share its words."""

from __future__ import annotations

import pytest

from poot.codegen.gen.index import Indexer
from poot.codegen.gen.memory import Cell, Memory, cell_of
from poot.codegen.gen.numbers import Numbers
from poot.codegen.kir.build import KernelBuilder
from poot.codegen.kir.nodes import Ins
from poot.limits import PROFILES


@pytest.mark.parametrize(
    "profile, dtype, param, per",
    [
        ("lavapipe", "f32", "f32", 1),
        ("lavapipe", "bool", "u32", 1),
        ("lavapipe", "f16", "f16", 1),
        ("lavapipe", "bf16", "u32", 2),
        ("webgpu-baseline", "f16", "u32", 2),
        ("webgpu-baseline", "u8", "u32", 4),
        ("h200", "bf16", "bf16", 1),
        ("h200", "f8e4m3", "u8", 1),
    ],
)
def test_a_dtypes_cell_follows_the_target(profile, dtype, param, per):
    assert cell_of(dtype, PROFILES[profile]) == Cell(dtype, param, per)


def memory(elems: int, vector: int) -> tuple[KernelBuilder, Indexer, Memory]:
    k = KernelBuilder("load", threads=1)
    k.param("x", "f32", elems, "r")
    ix = Indexer(k)
    return k, ix, Memory(k, Numbers(k, frozenset()), ix, "x", Cell("f32", "f32", 1), elems, vector)


def loads(k: KernelBuilder) -> list[str]:
    return [str(s.dsts[0].type) for s in k.kernel().body if isinstance(s, Ins) and s.op == "load"]


def test_four_neighbours_are_one_wide_load():
    k, ix, mem = memory(64, 4)
    row = ix.atom(k.group_id(0), 16)
    for u in range(4):
        mem.load(row * 4 + u)
    assert loads(k) == ["f32x4"]


@pytest.mark.parametrize("elems, step, vector", [(63, 4, 4), (64, 2, 4), (64, 4, 1)])
def test_odd_counts_and_steps_load_one_by_one(elems, step, vector):
    k, ix, mem = memory(elems, vector)
    mem.load(ix.atom(k.group_id(0), 8) * step)
    assert loads(k) == ["f32"]
