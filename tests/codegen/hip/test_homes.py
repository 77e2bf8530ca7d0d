"""Registers are declared where they are first written, or at the top."""

from __future__ import annotations

import numpy as np

from poot.codegen.hip.homes import at_top
from poot.codegen.kir.build import I32, KernelBuilder
from poot.codegen.kir.text import parse
from tests.support.hip.both import agree, body_of


def hoisted(body: str) -> list[str]:
    kernel = parse(f"kernel k threads=4 {{\nparam y: i32[4] rw align=16\n{body}\n}}\n")
    return [reg.name for reg in at_top(kernel.body)]


def test_what_is_written_and_read_in_one_block_stays_there():
    assert hoisted("t1: i32 = lane\nvar m: i32 = set t1\nm = set 3\nstore y[t1], m") == []


def test_what_inner_blocks_read_stays_with_its_write():
    assert hoisted("t1: i32 = lane\nif true {\nstore y[t1], t1\n}") == []


def test_what_branches_write_and_later_code_reads_is_at_the_top():
    body = """t1: i32 = lane
    c: bool = lt t1, 2
    if c {
      var m: i32 = set 5
    } else {
      m = set 6
    }
    store y[t1], m"""
    assert hoisted(body) == ["m"]


def test_a_while_keeps_what_its_head_makes_for_its_body():
    body = """var m: i32 = set 0
    while {
      c: bool = lt m, 3
      t: i32 = add m, 1
    } c {
      m = set t
    }
    store y[0], m"""
    assert hoisted(body) == []


def test_both_branches_write_what_is_read_after_them():
    text = """kernel k threads=4 {
      param y: i32[4] w align=16
      t1: i32 = lane
      c: bool = lt t1, 2
      if c {
        var m: i32 = set 5
      } else {
        m = set 6
      }
      store y[t1], m
    }
    """
    kernel = parse(text)
    assert body_of(kernel)[0] == "int m;"
    np.testing.assert_array_equal(agree(kernel, {})["y"], [5, 5, 6, 6])


def test_a_register_of_a_loop_keeps_its_value_between_trips():
    k = KernelBuilder("carry", 1)
    y = k.param("y", "i32", 4, "w")
    m = k.var(0, I32)
    with k.for_(0, 4) as i:
        k.store(y, i, m)
        k.set(m, k.copy(m) + 1)
    got = agree(k.kernel(), {})["y"]
    np.testing.assert_array_equal(got, [0, 1, 2, 3])
