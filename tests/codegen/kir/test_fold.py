"""What folding knows is what running gives."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from poot.codegen.kir.fold import fold
from poot.codegen.kir.nodes import Ins, Lit, Reg, Ty
from poot.codegen.kir.sim.values import constant, pure
from tests.support.kernels import run_kernel

pytestmark = pytest.mark.quick
I32, U32, F32, BOOL = (Ty(d) for d in ("i32", "u32", "f32", "bool"))
X = Reg("x", I32)


@given(
    name=st.sampled_from(["add", "sub", "mul", "min", "max", "and", "or", "xor"]),
    a=st.integers(-(2**31), 2**31 - 1),
    b=st.integers(-(2**31), 2**31 - 1),
)
def test_whole_numbers_fold_to_what_the_simulator_gives(name, a, b):
    args = (Lit(a, I32), Lit(b, I32))
    folded = fold(name, args, I32)
    run = pure(Ins(name, (X,), args))
    assert run is not None
    with np.errstate(all="ignore"):
        assert folded == Lit(int(run(constant(args[0]), constant(args[1]))), I32)


@pytest.mark.parametrize("a", [7, -7, 0, 2**31 - 1])
@pytest.mark.parametrize("b", [2, -2, 1, -1])
def test_division_truncates(a, b):
    quotient, rest = (
        fold("div", (Lit(a, I32), Lit(b, I32)), I32),
        fold("rem", (Lit(a, I32), Lit(b, I32)), I32),
    )
    assert quotient == Lit(math.trunc(a / b), I32)
    assert rest == Lit(int(math.fmod(a, b)), I32)


def test_division_by_zero_is_left_to_be_seen():
    assert fold("div", (Lit(3, I32), Lit(0, I32)), I32) is None
    assert fold("rem", (Lit(3, I32), Lit(0, I32)), I32) is None


@pytest.mark.parametrize(
    "name, args, want",
    [
        ("add", (X, Lit(0, I32)), X),
        ("add", (Lit(0, I32), X), X),
        ("sub", (X, Lit(0, I32)), X),
        ("mul", (X, Lit(1, I32)), X),
        ("mul", (X, Lit(0, I32)), Lit(0, I32)),
        ("div", (X, Lit(1, I32)), X),
        ("rem", (X, Lit(1, I32)), Lit(0, I32)),
        ("and", (X, Lit(0, I32)), Lit(0, I32)),
        ("shl", (X, Lit(0, I32)), X),
        ("sub", (Lit(0, I32), X), None),
        ("add", (X, X), None),
    ],
)
def test_units_and_zeros_drop_out_of_integers(name, args, want):
    assert fold(name, args, I32) == want


F = Reg("f", F32)


@pytest.mark.parametrize(
    "name, args, want",
    [
        ("mul", (F, Lit(1.0, F32)), F),
        ("div", (F, Lit(1.0, F32)), F),
        ("add", (F, Lit(0.0, F32)), None),
        ("mul", (F, Lit(0.0, F32)), None),
        ("sub", (F, F), None),
    ],
)
def test_floats_fold_only_where_nan_and_minus_zero_stay_what_they_are(name, args, want):
    assert fold(name, args, F32) == want


def test_choices_comparisons_and_logic_fold():
    yes, no, c = Lit(True, BOOL), Lit(False, BOOL), Reg("c", BOOL)
    assert fold("select", (yes, X, Lit(3, I32)), I32) == X
    assert fold("select", (no, X, Lit(3, I32)), I32) == Lit(3, I32)
    assert fold("select", (c, X, X), I32) == X
    assert fold("lt", (Lit(1, I32), Lit(2, I32)), BOOL) == yes
    assert fold("eq", (Lit(math.nan, F32), Lit(math.nan, F32)), BOOL) == no
    assert fold("and", (c, yes), BOOL) == c
    assert fold("and", (no, c), BOOL) == no
    assert fold("or", (c, yes), BOOL) == yes
    assert fold("not", (yes,), BOOL) == no


def test_words_wrap_as_unsigned():
    assert fold("sub", (Lit(0, U32), Lit(1, U32)), U32) == Lit(2**32 - 1, U32)
    out = np.zeros(1, np.uint32)
    head = "param o: u32[1] w align=4"
    run_kernel("a: u32 = sub 0:u32, 1:u32\nstore o[0], a", head, {"o": out}, threads=1)
    assert out[0] == 2**32 - 1
