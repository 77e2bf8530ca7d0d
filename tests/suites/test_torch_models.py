"""Models that poot's authors did not write, from `transformers` through `torch.export`: logits, and
every attention fused."""

from __future__ import annotations

from contextlib import closing

import numpy as np
import pytest

from poot.errors import RangeError
from poot.ir.graph import Eqn
from tests.support.everywhere import compile_on, eqns_of, on
from tests.support.hf_export import CAPACITY, ENCODERS, Exported, decoder, encoder, exported

CLOSE = 1e-3
# Softcaps, sinks, biases and widths that differ have no sdpa form in transformers.
EAGER = ("llama3", "mixtral", "qwen3", "gemma2", "gpt_oss", "bloom", "deepseek_v3", "gpt2", "mpt")
SDPA = (
    "llama2",
    "mistral",
    "qwen2",
    "gemma3",
    "phi3",
    "gpt2",
    "opt",
    "falcon",
    "gpt_neox",
    "olmo2",
)
FORMS = [*((n, "eager") for n in EAGER), *((n, "sdpa") for n in SDPA)]


def attentions(given: Exported, target: str) -> list[Eqn]:
    program = compile_on(target, given.imported.graph)
    return [e for e in eqns_of(program.entries["main"].final) if e.op == "attention"]


@on("cpu", "vulkan")
@pytest.mark.parametrize("name, attention", FORMS)
def test_logits_are_those_of_torch(name: str, attention: str, target: str):
    given = exported(name, attention)
    with closing(given.imported.bind(compile_on(target, given.imported.graph))) as session:
        out = session.step(**given.feed)
    assert isinstance(out, dict)
    np.testing.assert_allclose(out["logits"], given.logits, rtol=CLOSE, atol=CLOSE)


@pytest.mark.parametrize("name, attention", FORMS)
def test_every_attention_is_fused(name: str, attention: str):
    given = exported(name, attention)
    assert len(attentions(given, "cpu")) == given.layers


@on("cpu")
@pytest.mark.parametrize("name", ["llama2", "gemma3"])
def test_a_padded_row_hides_its_padding_and_keeps_its_bounds(name: str, target: str):
    given = exported(name, "sdpa", padded=True)
    found = [dict(e.attrs) for e in attentions(given, target)]
    assert {a.get("causal") for a in found} == {0}
    assert ("window" in found[0]) == (name == "gemma3")
    with closing(given.imported.bind(compile_on(target, given.imported.graph))) as session:
        out = session.step(**given.feed)
    assert isinstance(out, dict)
    np.testing.assert_allclose(out["logits"], given.logits, rtol=CLOSE, atol=CLOSE)


@on("cpu", "vulkan")
@pytest.mark.parametrize("name", ENCODERS)
def test_encoders_are_those_of_torch_and_their_attention_fused(name: str, target: str):
    given = encoder(name, "eager" if name == "t5" else "sdpa")
    assert len(attentions(given, target)) == given.layers
    with closing(given.imported.bind(compile_on(target, given.imported.graph))) as session:
        out = session.step(**given.feed)
    assert isinstance(out, dict)
    np.testing.assert_allclose(next(iter(out.values())), given.logits, rtol=CLOSE, atol=CLOSE)


@on("cpu", "vulkan")
@pytest.mark.parametrize("name", ["llama2", "qwen3"])
def test_a_static_cache_is_state_and_its_live_keys_alone_are_visited(name: str, target: str):
    given, whole = decoder(name), exported(name, "sdpa")
    program = compile_on(target, given.graph)
    forms = [e.attr("operands") for e in eqns_of(program.entries["main"].final)]
    assert [f for f in forms if f] == [("q", "k", "v", "len")] * whole.layers
    (ids,) = whole.feed["input_ids"]
    with closing(given.bind(program)) as session:
        for n, token in enumerate(ids[:8]):
            out = np.asarray(session.step(input_ids=[[token]], cache_position=[n]))
            np.testing.assert_allclose(out[0, 0], whole.logits[0, n], rtol=CLOSE, atol=CLOSE)
        with pytest.raises(RangeError, match=f"in 0..{CAPACITY - 1}"):
            session.step(input_ids=[[1]], cache_position=[CAPACITY])
