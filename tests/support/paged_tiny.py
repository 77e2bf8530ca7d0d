"""A Llama of a few kilobytes behind an engine, on any target."""

from __future__ import annotations

import tempfile
from functools import cache
from pathlib import Path

import numpy as np

from poot.llm.config import LlamaConfig, read_llama_config
from poot.llm.engine import Engine, EngineOptions
from poot.llm.gguf_file import GgufFile, read_gguf
from poot.llm.layout import Layout
from poot.llm.models.paged_llama import paged_llama_arrays, paged_llama_graphs
from poot.llm.tokenizer import read_tokenizer
from poot.session import Session
from tests.support.everywhere import compile_on
from tests.support.numpy_llama import NumpyLlama, numpy_llama
from tests.support.tiny_llama import write_tiny_llama

LAYOUT = Layout(blocks=24, capacity=96, decode_rows=(1, 4), prefill=((1, 16), (2, 16)))


@cache
def tiny() -> GgufFile:
    with tempfile.TemporaryDirectory() as folder:
        return read_gguf(write_tiny_llama(Path(folder) / "tiny.gguf"))


@cache
def config() -> LlamaConfig:
    return read_llama_config(tiny())


def reference() -> NumpyLlama:
    """An independent decoder with an empty cache."""
    return numpy_llama(tiny(), config())


def session(target: str, layout: Layout = LAYOUT, dtype: str = "f32") -> Session:
    program = compile_on(target, paged_llama_graphs(tiny(), config(), layout, dtype=dtype))
    return program.bind(paged_llama_arrays(tiny(), config(), layout, dtype=dtype))


def engine(target: str, layout: Layout = LAYOUT, **options: int | bool) -> Engine:
    tokenizer = read_tokenizer(tiny().metadata, "tiny")
    return Engine(
        session(target, layout), layout, vocab=config().vocab, weights="tiny",
        tokenizer=tokenizer, options=EngineOptions(**options),  # pyright: ignore[reportArgumentType] - by name
    )  # fmt: skip


def prompts(seed: int, count: int, most: int) -> list[tuple[int, ...]]:
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, most + 1, count)
    return [tuple(int(t) for t in rng.integers(3, 260, size)) for size in sizes]


def gaps(
    prompt: tuple[int, ...], tokens: tuple[int, ...], model: NumpyLlama | None = None
) -> list[tuple[int, float]]:
    """For each of `tokens` after a prompt, by the reference (or a decoder with an empty cache): the
    best token there, and by how much its logit is above the second."""
    model = model or reference()
    rows: list[tuple[int, float]] = []
    logits = model(list(prompt))[-1]
    for token in tokens:
        best = np.argsort(-logits, kind="stable")[:2]
        rows.append((int(best[0]), float(logits[best[0]] - logits[best[1]])))
        logits = model([token])[-1]
    return rows
