"""Indices that count from the end, and ranges of slots."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

import poot
from poot.frontends.jax.indices import made_by, with_from_end, with_ranges
from poot.frontends.jax.trees import read_function
from poot.ir.graph import Slot
from tests.support.jaxpr import floats, ints, storages

TABLE, IDS = floats(11, 4), ints(2, 3, lo=0)


def test_a_negative_index_is_one_call():
    foreign = with_from_end(read_function(lambda w, i: w[i], (TABLE, IDS), (0,), ()))
    (call,) = (c for c in foreign.calls if c.op == "from_end")
    assert call.args[1] == 11
    assert [c.op for c in foreign.calls].count("select_n") == 0


def test_a_select_of_something_else_stays():
    fn = lambda i: jnp.where(i < 0, i + 3, i + 1)  # noqa: E731 - one line
    foreign = with_from_end(read_function(fn, (IDS,), (), ()))
    assert [c.op for c in foreign.calls].count("select_n") == 1


def test_what_makes_a_value_is_known():
    foreign = read_function(lambda x: jnp.sin(x), (TABLE,), (), ())
    assert [c.op for c in made_by(foreign).values()] == ["sin"]


def test_a_slot_that_indexes_a_table_gets_its_range():
    for fn in (
        lambda w, i: w[i],
        lambda w, i: jnp.take(w, i.reshape(-1), axis=0),
        lambda w, i: jax.vmap(jax.vmap(lambda n: w[n]))(i),
    ):
        got = poot.from_jax(fn, TABLE, IDS, weights=(0,))
        assert storages(got) == {"i": Slot("user", (0, 11))}


def test_a_slot_that_indexes_what_is_computed_gets_none():
    foreign = with_ranges(read_function(lambda w, i: (w * 2)[i], (TABLE, IDS), (0,), ()))
    assert [g.storage for g in foreign.givens if g.name == "i"] == [Slot()]


def test_the_least_of_two_ranges_holds():
    got = poot.from_jax(lambda a, b, i: a[i] + b[i], TABLE, TABLE[:7], IDS, weights=(0, 1))
    assert storages(got) == {"i": Slot("user", (0, 7))}


def test_an_index_proved_from_its_range_needs_no_select():
    got = poot.from_jax(lambda w, i: w[i], TABLE, IDS, weights=(0,))
    assert {e.op for e in got.graph.eqns} == {"gather", "reshape"}
    assert np.shares_memory(got.weights["w"], TABLE)
