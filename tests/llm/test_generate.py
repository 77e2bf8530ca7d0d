"""The generation loop, over a step function in numpy."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from poot.errors import RequestError
from poot.llm.generate import Chunk, chunks, generate, stream_text
from poot.llm.sampling import Sampling
from poot.llm.tokenizer import read_tokenizer
from tests.support.smollm2 import smollm2

VOCAB = 50


@dataclass(slots=True)
class Recorder:
    """A model with a cache of tokens: the next token is (sum of all tokens so far) mod VOCAB.
    It checks that a step reads only positions that were written, and writes inside the capacity."""

    capacity: int
    cache: list[int] = field(default_factory=list)
    calls: list[tuple[int, int, int]] = field(default_factory=list)

    def __call__(self, tokens: NDArray[np.int32], pos: int, last: int) -> NDArray[np.float32]:
        assert pos + len(tokens) <= self.capacity
        assert pos <= len(self.cache)
        assert 0 <= last < len(tokens)
        self.cache[pos:] = [int(token) for token in tokens]
        self.calls.append((pos, len(tokens), last))
        logits = np.zeros(VOCAB, np.float32)
        logits[sum(self.cache[: pos + last + 1]) % VOCAB] = 9.0
        return logits


def run(prompt: list[int], count: int, *, capacity: int = 64, **options: object) -> list[int]:
    return list(
        generate(
            Recorder(capacity),
            prompt,
            capacity=capacity,
            buckets=(1, 4, 16),
            max_tokens=count,
            sampling=Sampling(),
            **options,  # pyright: ignore[reportArgumentType] - named options of generate
        )
    )


def expected(prompt: list[int], count: int) -> list[int]:
    tokens = list(prompt)
    for _ in range(count):
        tokens.append(sum(tokens) % VOCAB)
    return tokens[len(prompt) :]


@given(st.lists(st.integers(0, VOCAB - 1), min_size=1, max_size=60), st.integers(1, 40))
def test_tokens_do_not_depend_on_how_the_prompt_is_cut(prompt: list[int], count: int):
    capacity = len(prompt) + count
    assert run(prompt, count, capacity=capacity) == expected(prompt, count)


def test_each_new_token_costs_one_step_and_the_last_none():
    step = Recorder(64)
    list(
        generate(
            step,
            [1] * 21,
            capacity=64,
            buckets=(1, 4, 16),
            max_tokens=3,
            sampling=Sampling(),
        )
    )
    assert step.calls == [(0, 16, 15), (16, 16, 4), (21, 1, 0), (22, 1, 0)]


def test_a_stop_token_ends_the_run_and_is_not_yielded():
    tokens = expected([3, 4], 10)
    assert run([3, 4], 10, stops=frozenset({tokens[4]})) == tokens[:4]


def test_tokens_come_one_at_a_time():
    step = Recorder(64)
    tokens = generate(step, [5], capacity=64, buckets=(1,), max_tokens=30, sampling=Sampling())
    assert step.calls == []
    assert next(tokens) == 5
    assert len(step.calls) == 1


def test_the_same_seed_gives_the_same_run_and_another_seed_another():
    def sampled(seed: int) -> list[int]:
        how = Sampling(temperature=8.0, seed=seed)
        return list(
            generate(Recorder(64), [7], capacity=64, buckets=(1,), max_tokens=20, sampling=how)
        )

    assert sampled(1) == sampled(1)
    assert sampled(1) != sampled(2)


def test_penalties_look_at_the_text_so_far():
    def text(**options: float) -> list[int]:
        how = Sampling(**options)
        return list(
            generate(Recorder(64), [7, 7], capacity=64, buckets=(1,), max_tokens=12, sampling=how)
        )

    assert len(set(text(penalty=1e9))) == len(set(text(presence=1e9))) == 12
    assert 7 not in text(penalty=1e9)
    assert text(frequency=1e-9) == text()


@pytest.mark.parametrize(
    "prompt, count, words",
    [
        ([], 1, "the prompt is empty"),
        ([1], 0, "max_tokens is 0"),
        ([1] * 60, 5, "60 tokens and 5 new ones pass the cache's capacity of 64"),
        ([1] * 65, 1, "65 tokens and 1 new ones"),
    ],
)
def test_a_request_that_can_not_be_met_is_refused_before_any_step(
    prompt: list[int], count: int, words: str
):
    step = Recorder(64)
    with pytest.raises(RequestError, match=words):
        generate(
            step,
            prompt,
            capacity=64,
            buckets=(1, 16),
            max_tokens=count,
            sampling=Sampling(),
        )
    assert step.calls == []


def test_a_prompt_and_its_tokens_may_fill_the_capacity():
    assert run([1] * 60, 4) == expected([1] * 60, 4)


def test_what_is_left_over_is_padded_into_the_smallest_bucket_that_holds_it():
    assert chunks(0, 21, (1, 4, 16), 64) == (Chunk(0, 16, 16), Chunk(16, 5, 16))
    assert chunks(0, 3, (1, 4, 16), 64) == (Chunk(0, 3, 4),)
    assert chunks(5, 1, (1, 4, 16), 64) == (Chunk(5, 1, 1),)


def test_near_the_capacity_no_bucket_passes_it():
    assert chunks(0, 21, (1, 4, 16), 22) == (Chunk(0, 16, 16), Chunk(16, 4, 4), Chunk(20, 1, 1))


@given(
    pos=st.integers(0, 50),
    count=st.integers(1, 200),
    spare=st.integers(0, 20),
    buckets=st.sets(st.integers(2, 64), max_size=3),
)
def test_chunks_cover_each_token_once_inside_the_capacity(
    pos: int, count: int, spare: int, buckets: set[int]
):
    capacity = pos + count + spare
    cut = chunks(pos, count, (1, *buckets), capacity)
    covered = [t for c in cut for t in range(c.start, c.start + c.length)]
    assert covered == list(range(pos, pos + count))
    for chunk in cut:
        assert 1 <= chunk.length <= chunk.bucket
        assert chunk.bucket in {1, *buckets}
        assert chunk.start + chunk.bucket <= capacity


@pytest.mark.parametrize("buckets", [(), (4, 16), (0, 1), (-1, 1)])
def test_buckets_without_1_or_below_it_are_refused(buckets: tuple[int, ...]):
    with pytest.raises(RequestError, match="needs 1 among them"):
        chunks(0, 4, buckets, 64)


def test_tokens_past_the_capacity_are_refused():
    with pytest.raises(RequestError, match="tokens 60 to 65 pass the capacity of 64"):
        chunks(60, 5, (1,), 64)


def test_text_comes_in_pieces_that_are_whole_and_not_empty():
    tokenizer = read_tokenizer(smollm2().metadata, "smollm2")
    text = "Grüße, 世界 😀!"
    pieces = list(stream_text(tokenizer.encode(text), tokenizer))
    assert "".join(pieces) == text
    assert all(pieces)
    assert "\ufffd" not in "".join(pieces)
    assert list(stream_text(tokenizer.encode("😀")[:1], tokenizer)) == ["\ufffd"]
