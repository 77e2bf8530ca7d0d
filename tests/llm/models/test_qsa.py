"""A small decoder with block-selected attention through `poot.llm`, against plain numpy: in one
piece, in chunks, token by token, and after a rollback."""

from __future__ import annotations

import numpy as np
import pytest

from poot.errors import RequestError
from poot.ir.graph import Weight
from poot.llm.generate import chunks, generate
from poot.llm.models.qsa import QsaConfig, QsaStep, entry_name, qsa_graphs
from poot.llm.sampling import Sampling
from tests.support.everywhere import compile_on, fused_count, on
from tests.support.numpy_qsa import arrays_of, logits_of

CONFIG = QsaConfig(
    layers=2, width=32, heads=4, kv_heads=2, head_dim=16, ffn=48, vocab=40, index_heads=3,
    index_dim=8, ratio=4, selected=3, theta=1e4,
)  # fmt: skip
CAPACITY, BUCKETS = 64, (1, 8)
TOKENS = np.random.default_rng(5).integers(0, CONFIG.vocab, 29).tolist()
WITHIN = 2e-4


def model(buckets=BUCKETS):
    graphs = qsa_graphs(CONFIG, capacity=CAPACITY, buckets=buckets)
    shapes = {
        i.name: i.var.type.shape for i in graphs["decode"].inputs if isinstance(i.storage, Weight)
    }
    return graphs, arrays_of(shapes)


def opened(target: str, buckets=BUCKETS):
    graphs, arrays = model(buckets)
    program = compile_on(target, graphs)
    for bucket in buckets if target != "oracle" else ():
        assert fused_count(program, "selected_attention", entry_name(bucket)) == CONFIG.layers
        assert fused_count(program, "block_topk", entry_name(bucket)) == CONFIG.layers
    return program.bind(arrays), arrays


def fed(step: QsaStep, tokens: list[int], start: int, buckets) -> list[tuple[int, np.ndarray]]:
    """(row, logits) of the last token of each chunk."""
    got = []
    for c in chunks(start, len(tokens), buckets, CAPACITY):
        own = tokens[c.start - start :][: c.length]
        padded = np.array(own + [0] * (c.bucket - c.length), np.int32)
        got.append((c.start + c.length - 1, step(padded, c.start, c.length - 1)))
    return got


def check(target: str, buckets: tuple[int, ...]) -> None:
    session, arrays = opened(target, buckets)
    want = logits_of(CONFIG, arrays, TOKENS)
    try:
        for row, logits in fed(QsaStep(session), TOKENS, 0, buckets):
            np.testing.assert_allclose(logits, want[row], atol=WITHIN, err_msg=str(row))
    finally:
        session.close()


@on("oracle", "cpu", "vulkan", "wgpu")
def test_token_by_token_logits_are_the_definitions(target: str):
    check(target, (1,))


@on("oracle", "cpu")
def test_in_chunks_they_are_too(target: str):
    check(target, BUCKETS)


@on("oracle", "cpu")
def test_a_rollback_undoes_tokens_and_the_blocks_that_they_filled(target: str):
    """Case 9: as speculation does, into the middle of a block and across a block's end."""
    session, arrays = opened(target)
    step = QsaStep(session)
    try:
        fed(step, TOKENS[:29], 0, BUCKETS)
        for length in (26, 24, 21):
            step.rollback(length)
            own = TOKENS[:length] + TOKENS[::-1][: 40 - length]
            want = logits_of(CONFIG, arrays, own)
            for row, logits in fed(step, own[length:], length, BUCKETS):
                np.testing.assert_allclose(logits, want[row], atol=WITHIN)
    finally:
        session.close()


def test_tokens_are_generated_as_the_definition_says():
    session, arrays = opened("oracle")
    prompt = TOKENS[:13]
    got = list(
        generate(
            QsaStep(session), prompt, capacity=CAPACITY, buckets=BUCKETS, max_tokens=8,
            sampling=Sampling(temperature=0.0),
        )
    )  # fmt: skip
    want = list(prompt)
    for _ in range(8):
        want.append(int(logits_of(CONFIG, arrays, want)[-1].argmax()))
    assert got == want[13:]


def test_sizes_that_cannot_be_are_refused():
    with pytest.raises(RequestError, match="a multiple of 4"):
        qsa_graphs(CONFIG, capacity=30, buckets=(1,))
    with pytest.raises(RequestError, match="sizes from 1 to 32"):
        qsa_graphs(CONFIG, capacity=32, buckets=(1, 64))
