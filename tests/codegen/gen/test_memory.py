"""Cells: which dtypes lie whole in a parameter, and which share its words."""

from __future__ import annotations

import numpy as np
import pytest

from poot.codegen.gen.index import Indexer
from poot.codegen.gen.memory import Cell, Memory, cell_of, word_cell
from poot.codegen.gen.numbers import Numbers
from poot.codegen.kir.build import I32, KernelBuilder
from poot.codegen.kir.nodes import Ins
from poot.codegen.kir.sim import simulate
from poot.ir.dtypes import DTYPES
from poot.ir.graph import TensorType
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


@pytest.mark.parametrize("native", [frozenset({"f16", "bf16"}), frozenset[str]()])
@pytest.mark.parametrize("dtype", ["bf16", "f16", "i8", "u8", "f8e4m3"])
def test_an_element_of_a_word_is_what_lies_there(dtype, native):
    type = TensorType(dtype, (4,))
    cell = word_cell(type)
    assert cell is not None
    k = KernelBuilder("element", threads=1)
    words = 4 // cell.per
    k.param("x", "u32", words, "r")
    k.param("y", "f32" if DTYPES[dtype].kind == "float" else "i32", 4, "w")
    mem = Memory(k, Numbers(k, native), Indexer(k), "x", cell, 4)
    for n in range(4):
        word, place = divmod(n, cell.per)
        value = mem.element(k.load("x", word), place)
        k.store("y", n, k.bitcast(value, I32) if dtype == "u8" else value)
    want = np.array([1, 2, 3, 5] if dtype == "u8" else [1, -2, 3, -5], DTYPES[dtype].numpy)
    got = np.zeros(4, np.float32 if DTYPES[dtype].kind == "float" else np.int32)
    simulate(k.kernel(), {"x": want.view(np.uint32).copy(), "y": got}, (1, 1, 1))
    np.testing.assert_array_equal(got, want.astype(got.dtype))


def test_elements_that_fill_no_last_word_have_no_word_cell():
    assert word_cell(TensorType("bf16", (3,))) is None
    assert word_cell(TensorType("f32", (4,))) is None
