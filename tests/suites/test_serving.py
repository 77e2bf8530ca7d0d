"""The engine for long: thousands of requests with cancels, adapters and failing steps; and what a
cached prefix saves."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from poot.llm.config import read_llama_config
from poot.llm.engine import Engine, EngineOptions
from poot.llm.gguf_file import read_gguf
from poot.llm.layout import Layout, decode_entry, prefill_entry
from poot.llm.models.paged_llama import paged_llama_arrays, paged_llama_graphs
from poot.llm.request import Handle, Request, Result
from poot.llm.sampling import Sampling
from poot.llm.tokenizer import read_tokenizer
from tests.llm.test_adapters import merged, read, tensors_of, write
from tests.llm.test_engine import adapter
from tests.support import paged_tiny
from tests.support.everywhere import compile_on, fused_count
from tests.support.paged_fake import VOCAB, FakeSession, continued, random_prompts
from tests.support.smollm2 import smollm2
from tests.support.soak import FailingSession, Soak
from tests.support.tiny_llama import CONTEXT, write_tiny_llama

SOAK = Layout(
    blocks=40, capacity=96, decode_rows=(1, 2, 4, 6, 8), adapters=3,
    prefill=((1, 4), (2, 4), (4, 4), (1, 16), (2, 16), (4, 16)),
)  # fmt: skip
REQUESTS = 2000


def resident() -> int:
    """Bytes of this process that are in memory."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def fails_in(session: FakeSession, after: int) -> None:
    session.faults.at = {session.count + after}


@pytest.mark.slow
def test_2000_requests_with_cancels_adapters_and_faults_lose_nothing():
    """Every text is what the request alone would get, memory stays flat, padding below 25 %."""
    session = FakeSession(SOAK)
    options = EngineOptions(most_waiting=REQUESTS, retries=10)
    engine = Engine(session, SOAK, vocab=VOCAB, weights="d", options=options)
    soak = Soak(engine, adapter, lambda n: fails_in(session, n), 1, adapters=1000)
    prompts = list(random_prompts(2, REQUESTS, 60))
    held: list[int] = []
    for start in range(0, REQUESTS, 250):
        soak.wave(prompts[start : start + 250])
        for request, number, result in soak.ended():
            want = continued(list(request.prompt), len(result.tokens), float(number))
            assert list(result.tokens) == want
        session.steps.clear()
        held.append(resident())
    check_soaked(engine)
    assert max(held[4:]) < held[3] + (8 << 20), held


def check_soaked(engine: Engine) -> None:
    m = engine.metrics()
    print(m)
    assert (m.submitted, m.finished) == (REQUESTS, REQUESTS)
    assert m.failures >= 20
    assert m.preemptions > 0
    assert m.hit_tokens > 1000
    assert m.padding < 0.25
    engine.scheduler.prefix.clear()
    assert engine.scheduler.pool.free == engine.scheduler.pool.usable


TINY_SOAK = replace(SOAK, prefill=((1, 8), (4, 8), (1, 16), (4, 16)), adapters=3, rank=4)
ADAPTERS = 4


@cache
def tensors(number: int) -> dict[str, np.ndarray]:
    return tensors_of(number)


@pytest.mark.slow
@pytest.mark.parametrize("target", ["cpu"])
def test_2000_requests_of_the_tiny_model_lose_nothing(target: str, tmp_path: Path):
    """As above over a compiled model. Of every wave 15 texts are compared with the independent
    decoder, up to the first place where the top two logits are closer than floats can be."""
    session = FailingSession(paged_tiny.session(target, TINY_SOAK))
    options = EngineOptions(most_waiting=REQUESTS, retries=10)
    engine = Engine(
        session, TINY_SOAK, vocab=paged_tiny.config().vocab, weights="tiny", options=options
    )
    made = [read(write(tmp_path / str(n), tensors(n))) for n in range(1, ADAPTERS + 1)]
    soak = Soak(engine, lambda n: made[n - 1], session.fail, 1, adapters=ADAPTERS)
    prompts = list(random_prompts(2, REQUESTS, 60))
    held: list[int] = []
    clear = total = 0
    for start in range(0, REQUESTS, 250):
        soak.wave(prompts[start : start + 250])
        held.append(resident())
        for request, number, result in soak.ended()[::17]:
            model = merged(tensors(number), 2.0) if number else paged_tiny.reference()
            rows = paged_tiny.gaps(request.prompt, result.tokens, model)
            near = [gap <= 1e-3 for _, gap in rows]
            until = near.index(True) if True in near else len(near)
            assert result.tokens[:until] == tuple(best for best, _ in rows[:until])
            total, clear = total + len(near), clear + near.count(False)
    print(f"{target}: {clear} of {total} places are clear; resident {held}")
    assert clear >= 0.9 * total
    check_soaked(engine)
    assert session.failed >= 20
    assert max(held[4:]) < held[3] + (8 << 20), held


def long_engine(folder: Path, target: str) -> Engine:
    """The tiny model with a context of 2,304."""
    path = write_tiny_llama(folder / "long.gguf", keys={"llama.context_length": 2304})
    file = read_gguf(path)
    config = read_llama_config(file)
    layout = Layout(blocks=300, capacity=2304, decode_rows=(1,), prefill=((1, 16), (1, 64)))
    program = compile_on(target, paged_llama_graphs(file, config, layout, dtype="f32"))
    session = program.bind(paged_llama_arrays(file, config, layout, dtype="f32"))
    return Engine(session, layout, vocab=config.vocab, weights="long")


def first_token(engine: Engine, prompt: tuple[int, ...]) -> float:
    """Seconds from the submit to the first token of a request."""
    began = time.perf_counter()
    handle = engine.submit(Request(prompt, 1))
    engine.run()
    took = time.perf_counter() - began
    assert handle.result(0).finish.tokens == 1
    return took


@pytest.mark.parametrize("target", ["cpu"])
def test_a_shared_prefix_of_2000_tokens_saves_nine_tenths_of_the_first_token(
    target: str, tmp_path: Path
):
    engine = long_engine(tmp_path, target)
    rng = np.random.default_rng(0)
    ratios: list[float] = []
    for _ in range(4):
        prefix = tuple(int(t) for t in rng.integers(3, 260, 2000))
        without = first_token(engine, (*prefix, 5))
        steps = engine.metrics().steps
        with_hit = first_token(engine, (*prefix, 6, 7))
        assert engine.metrics().steps == steps + 1
        ratios.append(with_hit / without)
    print(f"{target}: time to the first token with the prefix is {sorted(ratios)[:3]} of without")
    assert min(ratios) < 0.1
    assert CONTEXT < 2000 < paged_tiny.LAYOUT.slots * 8


@pytest.mark.slow
@pytest.mark.parametrize("target", ["cpu"])
def test_smollm2_gives_each_request_the_text_it_has_alone(target: str):
    """Greedy text alone and in a batch: equal up to the first place where the top two logits are
    closer than 1e-3, which at least 90 % of the places are not. Counted and printed."""
    layout = Layout(blocks=64, capacity=128, decode_rows=(1, 4), prefill=((1, 64),), sampled=True)
    file, config = smollm2(), read_llama_config(smollm2())
    tokenizer = read_tokenizer(file.metadata, "smollm2")
    program = compile_on(target, paged_llama_graphs(file, config, layout))
    for entry in (decode_entry(1), decode_entry(4), prefill_entry(1, 64)):
        assert fused_count(program, "attention", entry) == 30
    session = program.bind(paged_llama_arrays(file, config, layout))
    texts = ["The capital of France is", "A compiler", "One, two, three,", "Water boils at"]
    prompts = [tuple(tokenizer.encode(text)) for text in texts]
    runs: list[list[Result]] = []
    for is_alone in (True, False):
        engine = Engine(session, layout, vocab=config.vocab, weights="s", tokenizer=tokenizer)
        handles: list[Handle] = []
        for prompt in prompts:
            handles.append(engine.submit(Request(prompt, 24, logprobs=2)))
            if is_alone:
                engine.run()
        engine.run()
        runs.append([h.result(0) for h in handles])
    clear = total = equal = 0
    for alone, company in zip(*runs, strict=True):
        near = [row.top[0][1] - row.top[1][1] < 1e-3 for row in alone.logprobs]
        until = near.index(True) if True in near else len(near)
        assert alone.tokens[:until] == company.tokens[:until]
        total, clear = total + len(near), clear + near.count(False)
        equal += sum(a == b for a, b in zip(alone.tokens, company.tokens, strict=True))
    print(f"{target}: {clear} of {total} places are clear, {equal} tokens are equal")
    assert clear >= 0.9 * total
    assert runs[1][0].text.startswith(" Paris.")
    sampled = Engine(session, layout, vocab=config.vocab, weights="t", tokenizer=tokenizer)
    how = Sampling(temperature=0.8, top_p=0.95, top_k=40, seed=3)
    drawn = [sampled.submit(Request(p, 12, how)) for p in prompts]
    sampled.run()
    by_host = Engine(
        session, replace(layout, sampled=False), vocab=config.vocab, weights="u",
        tokenizer=tokenizer,
    )  # fmt: skip
    again = [by_host.submit(Request(p, 12, how)) for p in prompts]
    by_host.run()
    same = [a.result(0).tokens == b.result(0).tokens for a, b in zip(drawn, again, strict=True)]
    assert sum(same) >= 3, "the device draws what the host draws, but at a tie"
