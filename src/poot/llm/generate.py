"""The loop that turns a step function into text: prompt in chunks, then token by token."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from poot.errors import RequestError
from poot.llm.sampling import Sampling, sample
from poot.llm.tokenizer import Tokenizer


class StepFn(Protocol):
    """One step of a model that keeps its own KV cache."""

    def __call__(self, tokens: NDArray[np.int32], pos: int, last: int) -> NDArray[np.float32]:
        """Write the keys and values of `tokens` [bucket] at positions pos, pos + 1, ... and return
        the logits [vocab] of row `last`. Rows past `last` are padding: a later step writes over
        their positions before anything reads them."""
        ...


@dataclass(frozen=True, slots=True)
class Chunk:
    """`length` tokens from `start`, run in the entry point of `bucket` rows."""

    start: int
    length: int
    bucket: int


def chunks(pos: int, count: int, buckets: Sequence[int], capacity: int) -> tuple[Chunk, ...]:
    """Cut tokens pos .. pos + count - 1 into chunks that fit the buckets, each whole bucket inside
    the capacity. What is left over goes in the smallest bucket that holds it, padded; where that
    would pass the capacity, in smaller full ones. Bucket 1 must be there.
    """
    sizes = sorted(set(buckets))
    if not sizes or sizes[0] != 1:
        raise RequestError(f"the buckets are {sizes}; needs 1 among them, and none below")
    if pos < 0 or pos + count > capacity:
        raise RequestError(f"tokens {pos} to {pos + count} pass the capacity of {capacity}")
    done: list[Chunk] = []
    while count:
        inside = [size for size in sizes if pos + size <= capacity]
        holds = [size for size in inside if size >= count]
        bucket = holds[0] if holds else inside[-1]
        length = min(bucket, count)
        done.append(Chunk(pos, length, bucket))
        pos, count = pos + length, count - length
    return tuple(done)


def generate(
    step: StepFn,
    prompt: Sequence[int],
    *,
    capacity: int,
    buckets: Sequence[int],
    max_tokens: int,
    sampling: Sampling,
    stops: frozenset[int] = frozenset(),
) -> Iterator[int]:
    """Yield up to `max_tokens` tokens that continue `prompt`, from an empty cache of `capacity`
    positions. A token of `stops` ends the run and is not yielded.

    Raises RequestError at once, before any step, for an empty prompt or one that with
    `max_tokens` passes the capacity.
    """
    if not prompt:
        raise RequestError("the prompt is empty; needs one token or more")
    if max_tokens < 1:
        raise RequestError(f"max_tokens is {max_tokens}; needs 1 or more")
    if len(prompt) + max_tokens > capacity:
        raise RequestError(
            f"a prompt of {len(prompt)} tokens and {max_tokens} new ones pass the cache's capacity "
            f"of {capacity}; ask for fewer tokens or a larger capacity"
        )
    plan = chunks(0, len(prompt), buckets, capacity)
    return _run(step, np.array(prompt, np.int32), plan, max_tokens, sampling, stops)


def _run(
    step: StepFn,
    prompt: NDArray[np.int32],
    plan: tuple[Chunk, ...],
    max_tokens: int,
    sampling: Sampling,
    stops: frozenset[int],
) -> Iterator[int]:
    logits = np.zeros(0, np.float32)
    for chunk in plan:
        rows = np.zeros(chunk.bucket, np.int32)
        rows[: chunk.length] = prompt[chunk.start : chunk.start + chunk.length]
        logits = step(rows, chunk.start, chunk.length - 1)
    text = list(prompt)
    for i in range(max_tokens):
        token = sample(logits, sampling, i, text)
        if token in stops:
            return
        text.append(token)
        yield token
        if i + 1 < max_tokens:
            logits = step(np.array([token], np.int32), len(prompt) + i, 0)


def stream_text(tokens: Iterable[int], tokenizer: Tokenizer) -> Iterator[str]:
    """The text of `tokens` in pieces as they come; no piece is empty or cuts a character."""
    decoder = tokenizer.stream()
    for token in tokens:
        if piece := decoder.push(token):
            yield piece
    if piece := decoder.end():
        yield piece
