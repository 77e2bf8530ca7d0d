"""Random keys, beside JAX."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import poot
from poot.errors import UnsupportedOps
from poot.frontends.jax.keys import words_of
from tests.support.jaxpr import check, floats

X = floats(3, 4)
WORDS = np.asarray(jax.random.key_data(jax.random.key(7)))


def key_of(words: jax.Array) -> jax.Array:
    return jax.random.wrap_key_data(words)


def test_a_key_holds_the_words_of_its_implementation():
    assert words_of(jax.random.key(0).dtype) == (2,)
    assert words_of(jax.random.key(0, impl="rbg").dtype) == (4,)
    assert words_of(np.dtype("float32")) is None


def test_draws_are_those_of_jax():
    def draws(x, words):
        a, b, c = jax.random.split(key_of(words), 3)
        return (
            x + jax.random.normal(a, x.shape), jax.random.uniform(b, (5,), minval=-1.0),
            x * jax.random.bernoulli(jax.random.fold_in(c, 3), 0.5, x.shape),
            jax.random.bits(c, (7,)), jax.random.bits(c, (3, 2), "uint8"),
        )  # fmt: skip

    check(draws, X, WORDS)


def test_integers_choices_and_orders_are_those_of_jax():
    def draws(words):
        a, b, c, d = jax.random.split(key_of(words), 4)
        return (
            jax.random.randint(a, (9,), -4, 11), jax.random.permutation(b, 12),
            jax.random.categorical(c, jnp.zeros((4, 5))), jax.random.choice(d, 30, (4,)),
        )  # fmt: skip

    check(draws, WORDS)


def test_other_distributions_are_those_of_jax():
    def draws(words):
        a, b, c, d = jax.random.split(key_of(words), 4)
        return (
            jax.random.exponential(a, (8,)), jax.random.gumbel(b, (8,)),
            jax.random.truncated_normal(c, -1.0, 2.0, (8,)), jax.random.laplace(d, (8,)),
        )  # fmt: skip

    check(draws, WORDS)


def test_a_seed_within_the_function_is_one_of_jax():
    def draw(x, seed):
        new, old = jax.random.key(seed), jax.random.PRNGKey(0)
        return x + jax.random.normal(new, x.shape), jax.random.uniform(old, (3,))

    check(draw, X, np.int32(5))
    check(draw, X, np.int32(-5))


def test_keys_are_moved_as_arrays_of_keys():
    def draws(words, n):
        keys = jax.random.split(key_of(words), (3, 4))
        turned = jnp.concatenate((keys.T[:2], keys[:2, :3].reshape(2, 3)), axis=0)
        one = jax.lax.dynamic_index_in_dim(turned[:, 1], n, keepdims=False)
        either = jax.lax.cond(n > 1, lambda: one, lambda: turned[0, 0])
        each = jax.vmap(lambda k: jax.random.uniform(k, (2,)))(turned[:, 0])
        return each, jax.random.bits(one), jax.random.bits(either), jax.random.key_data(turned[1:3])

    check(draws, WORDS, np.int32(1))
    check(draws, WORDS, np.int32(2))


def test_a_loop_splits_its_key():
    def draws(words):
        def step(key, x):
            key, own = jax.random.split(key)
            return key, jax.random.uniform(own) + x

        return jax.lax.scan(step, key_of(words), jnp.arange(3.0))[1]

    check(draws, WORDS)


def test_a_key_is_an_input_of_words():
    def draw(key, x):
        return x + jax.random.normal(key, x.shape)

    imported = poot.from_jax(draw, jax.random.key(1), X)
    assert [str(i.var.type) for i in imported.graph.inputs] == ["u32[2]", "f32[3,4]"]
    session = imported.bind(poot.compile(imported.graph, "cpu"))
    for seed in (1, 2):
        key = jax.random.key(seed)
        got = session.step(key=jax.random.key_data(key), x=X)
        np.testing.assert_allclose(got, draw(key, X), rtol=2e-5, atol=2e-5)


def test_a_key_that_is_closed_over_is_known():
    key = jax.random.key(3)
    check(lambda x: x + jax.random.normal(key, x.shape), X)


@pytest.mark.parametrize("target", ["cpu", "vulkan"])
def test_bits_are_exact_on_compiled_targets(target):
    def bits(words):
        return jax.random.bits(key_of(words), (33,)), jax.random.uniform(key_of(words), (4, 5))

    imported = poot.from_jax(bits, WORDS)
    got = imported.bind(poot.compile(imported.graph, target)).step(words=WORDS)
    for x, want in zip(got, bits(WORDS), strict=True):
        np.testing.assert_array_equal(x, np.asarray(want))


def test_what_poot_has_no_rows_for_is_listed_with_the_line_of_its_caller():
    def draw(x):
        return x + jax.random.gamma(jax.random.key(0), 2.0, x.shape)

    with pytest.raises(UnsupportedOps) as e:
        poot.from_jax(draw, X)
    line = draw.__code__.co_firstlineno + 1
    assert {u.loc for u in e.value.ops} == {f"{__file__}:{line}"}

    def other(x):
        return x + jax.random.uniform(jax.random.key(0, impl="rbg"), x.shape)

    with pytest.raises(UnsupportedOps, match="rng_bit_generator") as e:
        poot.from_jax(other, X)
    line = other.__code__.co_firstlineno + 1
    assert {u.loc for u in e.value.ops} == {f"{__file__}:{line}"}
