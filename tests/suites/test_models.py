"""SmolLM2 through the whole of poot: what is fused, what memory is planned, and teacher-forced
logits on every device against the oracle."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from poot.api import Program, compile
from poot.ir.attrs import str_attr
from poot.ir.graph import Graph
from poot.llm.config import LlamaConfig, read_llama_config
from poot.llm.models.llama import entry_name, llama_arrays, llama_graphs
from poot.llm.tokenizer import read_tokenizer
from poot.passes.pipeline import PIPELINE, Pass
from poot.planner.plan import EntryPlan
from poot.session import Session
from tests.support.everywhere import compile_on, eqns_of, fused_count, on
from tests.support.smollm2 import smollm2
from tests.support.tol import assert_within

TEXT = (
    "Attention reads every key once and keeps a running maximum, a denominator and a sum. What it "
    "never keeps is the matrix of scores, and so a long context costs time but no memory of its "
    "own. A cache holds the keys and values of what was read before; each step adds a row to it "
    "and looks back over all of them, as far as the mask lets it see."
)
CAPACITY = 128
LAYERS = 4


def config_of(layers: int | None = None) -> LlamaConfig:
    """The checkpoint's configuration, or that of its first layers alone."""
    config = read_llama_config(smollm2())
    return config if layers is None else replace(config, layers=layers)


@cache
def tokens() -> list[int]:
    """68 tokens of a fixed text: 64 to read at once, and 4 to go on with."""
    ids = read_tokenizer(smollm2().metadata, "smollm2").encode(TEXT)
    assert len(ids) >= 68
    return [int(i) for i in ids[:68]]


@cache
def graphs(layers: int | None, buckets: tuple[int, ...], dtype: str = "file") -> dict[str, Graph]:
    return llama_graphs(
        smollm2(), config_of(layers), capacity=CAPACITY, buckets=buckets, dtype=dtype,
        all_logits=True,
    )  # fmt: skip


def forced(session: Session, cuts: list[int]) -> np.ndarray:
    """Logits of every row of the text, read in chunks of these lengths. The session is closed."""
    got: list[np.ndarray] = []
    at = 0
    try:
        for length in cuts:
            ids = np.asarray(tokens()[at : at + length], np.int32)
            got.append(np.asarray(session.step(entry_name(length), tokens=ids, pos=np.int32(at))))
            at += length
    finally:
        session.close()
    return np.concatenate([x.reshape(-1, x.shape[-1]) for x in got])


def bound(program: Program, layers: int | None, dtype: str) -> Session:
    return program.bind(llama_arrays(smollm2(), config_of(layers), capacity=CAPACITY, dtype=dtype))


@cache
def reference(layers: int | None) -> np.ndarray:
    """The oracle's logits for all 68 tokens, over decoded weights."""
    cuts = [64, 1, 1, 1, 1]
    program = compile_on("oracle", graphs(layers, (1, 64), "f32"))
    return forced(bound(program, layers, "f32"), cuts)


def logits(
    target: str,
    layers: int | None,
    cuts: list[int],
    dtype: str,
    passes: tuple[Pass, ...] = PIPELINE,
) -> np.ndarray:
    buckets = tuple(sorted(set(cuts)))
    program = compile_on(target, graphs(layers, buckets, dtype), passes=passes)
    return forced(bound(program, layers, dtype), cuts)


@pytest.mark.slow
@on(but="simulator webgpu-baseline hip-fibers")
def test_the_whole_model_agrees_with_the_oracle(target: str):
    got = logits(target, None, [64, 1, 1, 1, 1], "file")
    assert_within(got, reference(None), "logits")


@pytest.mark.slow
@pytest.mark.parametrize(
    "dtype, cuts",
    [("f32", [16] * 4), ("file", [16, 1, 16, 1, 16, 16]), ("file", [1] * 40)],
    ids=["in chunks, f32", "in mixed chunks, in its codes", "token by token, in its codes"],
)
@on(but="simulator webgpu-baseline hip-fibers")
def test_the_first_layers_agree_in_chunks_and_token_by_token(
    target: str, dtype: str, cuts: list[int]
):
    got = logits(target, LAYERS, cuts, dtype)
    assert_within(got, reference(LAYERS)[: sum(cuts)], "logits")


@pytest.mark.slow
@on(but="simulator hip-fibers")
def test_the_primitives_of_the_first_layers_agree_with_the_oracle(target: str):
    got = logits(target, 2, [16, 1], "file", passes=())
    assert_within(got, reference(2)[:17], "logits")
    fused = logits(target, 2, [16, 1], "file")
    assert_within(fused, got, "logits")


def test_every_attention_is_fused_and_no_softmax_is_left():
    program = compile(graphs(None, (1, 64)), target="lavapipe", cache=False)
    text = program.explain()
    for entry in ("decode", "prefill_64"):
        assert fused_count(program, "attention", entry) == 30
        left = [e for e in eqns_of(program.entries[entry].final) if e.op == "reduce"]
        assert [e for e in left if str_attr(e, "kind") != "sum"] == [], "a maximum: a softmax"
        assert not any(r.declined for r in program.entries[entry].reports)
    assert text.count("30 x attention q f32[1,9,") == 2
    assert text.count("n_rep = 3") == 2


def planned_elems(entry: EntryPlan) -> int:
    """The largest value that a step of an entry point makes or needs as scratch, in words."""
    places = [p for s in entry.steps for p in (*s.outs, *s.scratch) if p.space.startswith("arena")]
    return max(p.nbytes for p in places) // 4


def prefill_plan(length: int, layers: int | None, passes: tuple[Pass, ...]) -> EntryPlan:
    made = llama_graphs(smollm2(), config_of(layers), capacity=length, buckets=(length,))
    program = compile(made, target="lavapipe", passes=passes, cache=False)
    return program.plan.entries[0]


def test_a_prefill_of_2048_tokens_plans_no_matrix_of_scores():
    assert planned_elems(prefill_plan(2048, None, PIPELINE)) < 2048 * 2048
    # The measure sees one where there is one: nine heads' scores.
    assert planned_elems(prefill_plan(512, 1, ())) >= 9 * 512 * 512


def test_kernels_do_not_grow_with_layers():
    few, many = (
        compile(graphs(layers, (1, 64)), target="webgpu-baseline", cache=False)
        for layers in (LAYERS, None)
    )
    assert {c.key for c in few.codes} == {c.key for c in many.codes}
    steps = [Counter(s.op for s in p.plan.entries[0].steps) for p in (few, many)]
    assert sum(steps[1].values()) > 6 * sum(steps[0].values())
    arenas = [dict(p.plan.spaces)["arena"] for p in (few, many)]
    assert arenas[0] == arenas[1]
