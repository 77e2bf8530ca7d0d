"""Sampling: greedy, its bounds, its distribution, and that it repeats."""

from __future__ import annotations

import math

import numpy as np
import pytest

from poot.errors import RequestError, ValidationError
from poot.llm.sampling import Sampling, penalised, sample, uniform

LOGITS = np.array([0.0, 2.0, 1.0, 2.0, -np.inf, -1.0], np.float32)


def draws(how: Sampling, count: int = 4000, logits: np.ndarray = LOGITS) -> np.ndarray:
    """How often each token came, as shares."""
    tokens = [sample(logits, how, step) for step in range(count)]
    return np.bincount(tokens, minlength=len(logits)) / count


def softmax(logits: np.ndarray) -> np.ndarray:
    weights = np.exp(logits.astype(np.float64) - logits.max())
    return weights / weights.sum()


def test_temperature_0_takes_the_largest_and_the_lower_id_on_ties():
    assert sample(LOGITS, Sampling(), 0) == 1
    assert sample(LOGITS, Sampling(seed=9), 7) == 1


def test_top_k_of_1_is_greedy_at_any_temperature():
    assert draws(Sampling(temperature=5.0, top_k=1), 50)[1] == 1.0


def test_a_tiny_top_p_keeps_one_token():
    assert draws(Sampling(temperature=1.0, top_p=1e-9), 50)[1] == 1.0


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
def test_draws_follow_the_softmax_of_the_logits_over_the_temperature(temperature: float):
    want = softmax(LOGITS / temperature)
    # 4000 draws: a share strays by 4 standard deviations, 4 * sqrt(0.25 / 4000) = 0.032, at most.
    np.testing.assert_allclose(draws(Sampling(temperature=temperature)), want, atol=0.032)


def test_top_k_keeps_the_k_largest_and_their_proportions():
    want = softmax(np.array([-np.inf, 2, 1, 2, -np.inf, -np.inf]))
    np.testing.assert_allclose(draws(Sampling(temperature=1.0, top_k=3)), want, atol=0.032)


def test_top_p_keeps_the_fewest_tokens_that_reach_it():
    # Shares 0.39, 0.39, 0.14, ...: 0.5 needs both of the largest, and no third.
    got = draws(Sampling(temperature=1.0, top_p=0.5))
    np.testing.assert_allclose(got, [0, 0.5, 0, 0.5, 0, 0], atol=0.032)


def test_a_token_of_minus_infinity_is_never_chosen():
    assert draws(Sampling(temperature=100.0))[4] == 0.0
    assert draws(Sampling(temperature=100.0, top_k=6))[4] == 0.0


def test_the_same_seed_and_step_choose_the_same_token_and_others_differ():
    how = Sampling(temperature=1.0, seed=3)
    logits = np.zeros(1000, np.float32)
    first = [sample(logits, how, step) for step in range(20)]
    assert first == [sample(logits, how, step) for step in range(20)]
    assert first != [sample(logits, Sampling(temperature=1.0, seed=4), step) for step in range(20)]
    assert len(set(first)) > 15


def test_the_numbers_drawn_are_pinned():
    """A change here changes every seeded run, and must be one on purpose."""
    words = (uniform(0, 0, 4) * 2**24 - 0.5).astype(np.int64).tolist()
    assert words == [11431808, 12105493, 14170405, 2383275]


def test_numbers_are_spread_evenly_over_tokens_and_over_steps():
    over_tokens = uniform(1, 2, 49152)
    over_steps = np.array([uniform(1, step, 8)[5] for step in range(4096)])
    for numbers in (over_tokens, over_steps):
        assert numbers.min() > 0
        assert numbers.max() < 1
        shares = np.histogram(numbers, bins=16, range=(0, 1))[0]
        expected = len(numbers) / 16
        # Chi-square with 15 degrees of freedom passes 40 once in 2000 seeds.
        assert ((shares - expected) ** 2 / expected).sum() < 40
    assert abs(np.corrcoef(uniform(1, 2, 4096), uniform(1, 3, 4096))[0, 1]) < 0.06


@pytest.mark.parametrize("temperature", [1e-300, 1e-30, 1e30])
def test_extreme_temperatures_choose_a_token(temperature: float):
    token = sample(LOGITS, Sampling(temperature=temperature), 0)
    assert token in ((1, 3) if temperature < 1 else (0, 1, 2, 3, 5))


@pytest.mark.parametrize(
    "options, words",
    [
        ({"temperature": -1.0}, "temperature is -1.0"),
        ({"temperature": float("nan")}, "temperature is nan"),
        ({"temperature": float("inf")}, "temperature is inf"),
        ({"top_k": -1}, "top_k is -1"),
        ({"top_p": 0.0}, "top_p is 0.0"),
        ({"top_p": 1.5}, "top_p is 1.5"),
        ({"top_p": float("nan")}, "top_p is nan"),
        ({"seed": -1}, "seed is -1"),
        ({"seed": 1 << 32}, "seed is 4294967296"),
    ],
)
def test_an_option_out_of_range_is_named(options: dict[str, float], words: str):
    with pytest.raises(RequestError, match=words):
        Sampling(**options)  # pyright: ignore[reportArgumentType] - wrong on purpose


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_logits_that_are_no_numbers_are_refused_with_their_token(value: float):
    logits = LOGITS.copy()
    logits[2] = value
    with pytest.raises(ValidationError, match="step 4: the logit of token 2"):
        sample(logits, Sampling(), 4)


def test_logits_that_hide_every_token_are_refused():
    with pytest.raises(ValidationError, match="every logit is -inf"):
        sample(np.full(4, -np.inf, np.float32), Sampling(), 0)


def test_min_p_keeps_what_is_near_the_most_probable():
    # Shares to the largest: 1, 1, 0.37, 0.14, 0.05.
    got = draws(Sampling(temperature=1.0, min_p=0.3))
    want = softmax(np.array([-np.inf, 2, 1, 2, -np.inf, -np.inf]))
    np.testing.assert_allclose(got, want, atol=0.032)
    assert draws(Sampling(temperature=1.0, min_p=1.0), 50)[[1, 3]].sum() == 1.0


def test_a_penalty_makes_tokens_of_the_text_less_likely_and_no_others():
    assert sample(LOGITS, Sampling(penalty=1.5), 0, [1, 1]) == 3
    assert sample(LOGITS, Sampling(penalty=3.0), 0, [1, 3]) == 2
    np.testing.assert_array_equal(
        penalised(LOGITS, 2.0, [1, 5]), np.float32([0, 1, 1, 2, -np.inf, -2])
    )
    assert penalised(LOGITS, 1.0, [1]) is LOGITS
    assert penalised(LOGITS, 2.0, []) is LOGITS


@pytest.mark.parametrize(
    "options, words",
    [
        ({"min_p": 1.5}, "min_p is 1.5"),
        ({"min_p": -0.1}, "min_p is -0.1"),
        ({"min_p": float("nan")}, "min_p is nan"),
        ({"penalty": 0.0}, "the repetition penalty is 0.0"),
        ({"penalty": float("inf")}, "the repetition penalty is inf"),
    ],
)
def test_new_options_out_of_range_are_refused(options: dict[str, float], words: str):
    with pytest.raises(RequestError, match=words):
        Sampling(**options)  # pyright: ignore[reportArgumentType] - by name


def test_presence_and_frequency_take_from_what_came_after_the_prompt():
    text = [1, 1, 1, 3, 3]  # three of the prompt, two new
    assert sample(LOGITS, Sampling(presence=0.5), 2, text) == 1
    assert sample(LOGITS, Sampling(presence=0.5), 3, text) == 1  # both lose as much
    assert sample(LOGITS, Sampling(frequency=0.4), 5, text) == 3  # 2 - 2 * 0.4 against 2 - 3 * 0.4
    assert sample(LOGITS, Sampling(frequency=1.0), 5, text) == 2
    assert sample(LOGITS, Sampling(frequency=-1.0), 5, text) == 1
    assert sample(LOGITS, Sampling(presence=9.0), 0, text) == 1
    many = draws(Sampling(temperature=1.0, presence=30.0), 50)
    assert many[1] > 0  # nothing came yet: nothing is taken
    for name in ("presence", "frequency"):
        with pytest.raises(RequestError, match=f"{name} is nan"):
            Sampling(**{name: float("nan")})


@pytest.mark.parametrize("penalty", [1e-50, 1e-44, 2e-39, 1e39, math.inf, math.nan])
def test_a_penalty_that_f32_or_its_reciprocal_does_not_hold_is_refused(penalty: float):
    with pytest.raises(RequestError, match="repetition penalty"):
        Sampling(penalty=penalty)


@pytest.mark.parametrize("name", ["presence", "frequency"])
def test_what_a_penalty_takes_is_a_number_of_f32(name: str):
    with pytest.raises(RequestError, match=f"{name} is 1e"):
        Sampling(**{name: 1e39})  # pyright: ignore[reportArgumentType] - by name


@pytest.mark.parametrize(
    "how",
    [
        Sampling(penalty=1e-38, temperature=1.0),
        Sampling(penalty=1e-38),
        Sampling(presence=-3e38, frequency=-3e38, temperature=1.0),
        Sampling(presence=3e38, frequency=-3e38, temperature=1.0),
    ],
)
def test_logits_that_penalties_drive_out_of_f32_are_refused_or_chosen_from(how: Sampling):
    logits = np.array([2.0, 900.0, -1.0], np.float32)
    if how.presence > 0:
        assert sample(logits, how, 1, [1]) == 1
        return
    with pytest.raises(ValidationError, match="the penalties make inf"):
        sample(logits, how, 2, [1, 1])
