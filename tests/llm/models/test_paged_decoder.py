"""Every family over paged pools against `transformers`: two sequences in one step."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from poot.limits import profile
from poot.llm.adapters import AdapterShelf, Modules, read_adapter
from poot.llm.layout import Layout, decode_entry, prefill_entry
from poot.llm.models.paged_decoder import paged_decoder_arrays, paged_decoder_graphs
from poot.llm.models.parts.places import lora_modules
from poot.passes.pipeline import run_pipeline
from poot.slots import ForwardSlotMap
from tests.support.everywhere import compile_on
from tests.support.hf_adapter import merged_logits, write_adapter
from tests.support.hf_run import IDS, tiny
from tests.support.hf_tiny import TINY, hf_logits

LAYOUT = Layout(blocks=8, capacity=32, decode_rows=(2,), prefill=((1, 16), (2, 16)))


def slots_for(rows: list[tuple[list[int], int, int]], tokens: int) -> dict[str, object]:
    """Slots of a step: each row is (its tokens, the position of the first, its first block)."""
    many = len(rows)
    ids = np.zeros((many, tokens), np.int32)
    read = np.zeros((many, LAYOUT.capacity), np.int32)
    write = np.full((many, tokens), -1)
    for i, (text, pos, block) in enumerate(rows):
        stop = pos + len(text)
        ids[i, : len(text)] = text
        read[i, :stop] = block * 16 + np.arange(stop)
        write[i, : len(text)] = block * 16 + np.arange(pos, stop)
    made: dict[str, object] = {"tokens": ids, "read": read}
    made["pos"] = np.array([pos for _, pos, _ in rows], np.int32)
    made["write"] = ForwardSlotMap(write.reshape(-1), LAYOUT.slots)
    if tokens > 1:
        made["last"] = np.array([len(text) - 1 for text, _, _ in rows], np.int32)
    return made


def checked(name: str, target: str) -> None:
    given = tiny(name)
    program = compile_on(target, paged_decoder_graphs(given.files, given.model, LAYOUT))
    session = program.bind(paged_decoder_arrays(given.files, given.model, LAYOUT))
    one, two = IDS[:20], IDS[20:26]
    want = hf_logits(name, one), hf_logits(name, two)
    rows = [(one[:16], 0, 1), (two[:5], 0, 3)]
    got = session.step(prefill_entry(2, 16), **slots_for(rows, 16))
    np.testing.assert_allclose(got["logits"], [want[0][15], want[1][4]], atol=1e-4)
    np.testing.assert_array_equal(got["ids"], [want[0][15].argmax(), want[1][4].argmax()])
    rows = [(one[16:17], 16, 1), (two[5:], 5, 3)]
    got = session.step(decode_entry(2), **slots_for(rows, 1))
    np.testing.assert_allclose(got["logits"], [want[0][16], want[1][5]], atol=1e-4)
    got = session.step(prefill_entry(1, 16), **slots_for([(one[17:], 17, 1)], 16))
    np.testing.assert_allclose(got["logits"][0], want[0][19], atol=1e-4)


@pytest.mark.parametrize("name", TINY)
def test_rows_of_a_step_agree_with_transformers_on_the_oracle(name: str):
    checked(name, "oracle")


@pytest.mark.parametrize(
    "target, name",
    [("cpu", "gemma3"), ("cpu", "gpt_oss"), ("cpu", "bloom"), ("cpu", "deepseek_v3"),
     ("vulkan", "gemma2"), ("vulkan", "deepseek_v2"), ("wgpu", "mpt"), ("wgpu", "qwen3_moe")],
)  # fmt: skip
def test_rows_of_a_step_agree_with_transformers_on_a_device(target: str, name: str):
    checked(name, target)


@pytest.mark.parametrize("name", TINY)
def test_every_attention_reads_its_pools_in_place(name: str):
    given = tiny(name)
    graphs = paged_decoder_graphs(given.files, given.model, LAYOUT)
    for entry in (decode_entry(2), prefill_entry(1, 16)):
        final = run_pipeline(graphs[entry], profile("h200"))[0]
        bodies = [dict(eqn.attrs).get("body") for eqn in final.eqns]
        inner = [eqn for body in bodies if body is not None for eqn in body.eqns]
        fused = [e for e in (*final.eqns, *inner) if e.op == "attention"]
        assert len(fused) == len(given.model.layers)
        assert all("read" in dict(e.attrs)["operands"] for e in fused)


ADAPTED = ["qwen2", "phi3", "gpt_oss", "mpt", "deepseek_v2", "deepseek_v3"]


@pytest.mark.parametrize(
    "target, name",
    [("cpu", "qwen2"), ("cpu", "deepseek_v3"), *(("oracle", name) for name in ADAPTED)],
)
def test_a_row_with_an_adapter_has_the_logits_of_merged_weights_and_one_without_has_not(
    target: str, name: str, tmp_path: Path
):
    given, layout = tiny(name), replace(LAYOUT, adapters=1, rank=4)
    folder = write_adapter(given, tmp_path / "adapter")
    graphs = paged_decoder_graphs(given.files, given.model, layout)
    session = compile_on(target, graphs).bind(
        paged_decoder_arrays(given.files, given.model, layout)
    )
    shelf = AdapterShelf(session, layout)
    shelf.load("a", read_adapter(folder, Modules(lora_modules(given.model), {})))
    ids, which = IDS[:17], np.array([1, 0], np.int32)
    want = merged_logits(name, folder, ids), hf_logits(name, ids)
    assert np.abs(want[0] - want[1]).max() > 0.1
    rows = [(ids[:16], 0, 1), (ids[:16], 0, 3)]
    got = session.step(prefill_entry(2, 16), **slots_for(rows, 16), adapter=which)
    np.testing.assert_allclose(got["logits"], [w[15] for w in want], atol=1e-3)
    rows = [(ids[16:], 16, 1), (ids[16:], 16, 3)]
    got = session.step(decode_entry(2), **slots_for(rows, 1), adapter=which)
    np.testing.assert_allclose(got["logits"], [w[16] for w in want], atol=1e-3)
