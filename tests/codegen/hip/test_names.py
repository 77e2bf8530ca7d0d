"""Names that C++ takes, one for each."""

from __future__ import annotations

import numpy as np

from poot.codegen.hip.names import Names, symbol
from poot.codegen.kir.build import KernelBuilder
from tests.support.hip.both import agree


def test_each_name_has_an_identifier_of_its_own():
    names = Names()
    assert names.of("memory", "x") == "x"
    assert names.of("register", "x") == "x_"
    assert names.of("register", "x") == "x_"
    assert names.of("register", "kv.0") == "kv_0"
    assert names.of("register", "0a") == "v_0a"


def test_words_of_the_language_and_of_the_text_are_left_alone():
    names = Names()
    names.reserve("is_nan")
    for word in ("float", "while", "threadIdx", "is_nan"):
        assert names.of("register", word) == f"{word}_"
    for word in ("f32x4", "load_f32x4", "reduce_add_f32_64", "__shfl"):
        assert names.of("register", word) == f"v_{word}"


def test_a_symbol_can_be_no_other_function():
    assert symbol("exp") == "poot_exp"
    assert symbol("a.b c") == "poot_a_b_c"


def test_a_kernel_of_awkward_names_runs():
    k = KernelBuilder("double", 4)
    x, y = k.param("int", "i32", 4, "r"), k.param("y", "i32", 4, "w")
    held = k.shared("register", "i32", 4)
    n = k.imm("y1", "i32")
    k.store(held, k.lane(), k.load(x, k.lane()) * n)
    k.barrier()
    with k.for_(0, 2, name="while") as i:
        k.store(y, k.lane(), k.load(held, k.lane()) + i)
    agree(k.kernel(), {"int": np.arange(4, dtype=np.int32)}, imms=(3,))
