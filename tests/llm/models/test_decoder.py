"""Every family against `transformers`: logits of prefill, chunks and single tokens."""

from __future__ import annotations

import itertools
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from poot.api import compile as compile_with
from poot.errors import RequestError
from poot.ir.graph import Eqn, Graph, Weight
from poot.limits import profile
from poot.llm.models.decoder import decoder_arrays, decoder_graphs
from poot.passes.pipeline import run_pipeline
from tests.support.everywhere import compile_on, on
from tests.support.hf_coded import logits_of_values, save_coded
from tests.support.hf_run import IDS, fed, on_oracle, read, stepper, tiny
from tests.support.hf_tiny import TINY, hf_logits

# f32 sums of at most 192 products of unit size in another order; Gemma's logits are the largest.
ATOL = 1e-4
GPU_ATOL = 1e-3  # besides: sines, exponentials and divisions of a GPU's own accuracy


@pytest.mark.parametrize("name", TINY)
def test_logits_are_those_of_transformers_on_the_oracle_in_one_piece_in_chunks_and_by_token(
    name: str,
):
    want = hf_logits(name, IDS)
    given = tiny(name)
    for cuts in ([48], [16] + [1] * 32, [16, 16, 16]):
        got = fed(stepper(given, "oracle", 64, tuple(sorted(set(cuts)))), IDS, cuts)
        np.testing.assert_allclose(got, want, rtol=0, atol=ATOL, err_msg=str(cuts))


@pytest.mark.parametrize("name", TINY)
def test_logits_are_those_of_transformers_on_the_cpu(name: str):
    step = stepper(tiny(name), "cpu", 64, (1, 16))
    got = fed(step, IDS, [16] + [1] * 32)
    np.testing.assert_allclose(got, hf_logits(name, IDS), rtol=0, atol=ATOL)


@on("vulkan", "wgpu")
@pytest.mark.parametrize("name", TINY)
def test_logits_are_those_of_transformers_on_a_gpu_in_chunks_and_32_steps(target: str, name: str):
    step = stepper(tiny(name), target, 64, (1, 16))
    want = hf_logits(name, IDS)
    for cuts in ([16] + [1] * 32, [16, 16, 16]):
        got = fed(step, IDS, cuts)
        np.testing.assert_allclose(got, want, rtol=0, atol=GPU_ATOL, err_msg=str(cuts))


def fused(graph: Graph, profile_name: str) -> list[Eqn]:
    """The attentions of a graph after the passes, those inside regions too."""
    final = run_pipeline(graph, profile(profile_name))[0]
    bodies = [dict(eqn.attrs).get("body") for eqn in final.eqns]
    inner = [eqn for body in bodies if isinstance(body, Graph) for eqn in body.eqns]
    return [eqn for eqn in (*final.eqns, *inner) if eqn.op == "attention"]


@pytest.mark.parametrize("limits", ["h200", "cpu-avx2", "lavapipe"])
@pytest.mark.parametrize("name", TINY)
def test_every_attention_is_fused_in_decode_and_prefill(name: str, limits: str):
    given = tiny(name)
    for graph in given.graphs(64, (1, 16)).values():
        assert len(fused(graph, limits)) == len(given.model.layers)


FORMS = {
    "gemma2": "softcap",
    "gpt_oss": "sink",
    "deepseek_v2": "k_shared",
    "deepseek_v3": "k_shared",
}


@pytest.mark.parametrize("name", FORMS)
def test_a_familys_own_form_is_in_its_fused_attention(name: str):
    prefill = fused(tiny(name).graphs(64, (16,))["prefill_16"], "h200")
    assert all(FORMS[name] in str(eqn.attrs) for eqn in prefill)


def test_a_token_of_deepseek_attends_to_the_latent_rows_as_one_key_head():
    decode = fused(tiny("deepseek_v3").graphs(64, (1,))["decode"], "h200")
    kinds = [[str(v.type) for v in eqn.ins[:3]] for eqn in decode]
    assert kinds == [["f32[1,4,1,32]", "f32[1,1,64,32]", "f32[1,1,64,24]"]] * 3


def test_a_cache_below_longropes_original_length_turns_by_the_short_factors():
    ids = IDS[:30]
    got = fed(stepper(tiny("phi3_long"), "oracle", 32, (30,)), ids, [30])
    np.testing.assert_allclose(got, hf_logits("phi3_long", ids), rtol=0, atol=ATOL)


@pytest.mark.parametrize("name", ["qwen2", "mixtral", "gpt_oss", "deepseek_v3"])
def test_matrices_of_a_bf16_checkpoint_stay_bf16_and_mean_their_values_in_f32(name: str):
    given = tiny(name, "bfloat16")
    graphs = given.graphs(64, (1, 16))
    arrays = decoder_arrays(given.files, given.model, capacity=64)
    for i in graphs["decode"].inputs:
        if isinstance(i.storage, Weight) and not i.name.startswith("w.turns."):
            is_matrix = len(i.var.type.shape) > 1
            assert i.var.type.dtype == ("bf16" if is_matrix else "f32"), i.name
            assert arrays[i.name].dtype == (ml_dtypes.bfloat16 if is_matrix else np.float32)
    wide = decoder_arrays(given.files, given.model, capacity=64, dtype="f32")
    short = fed(on_oracle(graphs, arrays), IDS[:18], [16, 1, 1])
    whole = fed(on_oracle(given.graphs(64, (1, 16), "f32"), wide), IDS[:18], [16, 1, 1])
    np.testing.assert_array_equal(short, whole)


def test_on_the_cpu_bf16_matrices_take_two_bytes_an_element_of_device_memory():
    given = tiny("llama2", "bfloat16")
    short, whole = (
        compile_on("cpu", given.graphs(64, (1,), dtype)).memory().nbytes
        for dtype in ("file", "f32")
    )
    assert short < 0.75 * whole  # caches and tables are f32 in both


CODED = {
    "fp8": "deepseek_v3", "fp8_rows": "mistral", "awq": "llama_biased", "gptq": "phi3",
    "mxfp4": "gpt_oss_wide",
}  # fmt: skip


@pytest.mark.parametrize(
    "target, method",
    [*itertools.product(("oracle", "cpu"), CODED), ("vulkan", "fp8"), ("vulkan", "mxfp4"),
     ("wgpu", "fp8_rows"), ("wgpu", "awq")],
)  # fmt: skip
def test_a_checkpoint_in_codes_stays_in_codes_and_means_their_values(
    target: str, method: str, tmp_path: Path
):
    folder = save_coded(CODED[method], method, tmp_path)
    given, ids = read(folder), IDS[:18]
    want = logits_of_values(folder, ids)
    got = fed(stepper(given, target, 32, (1, 16)), ids, [16, 1, 1])
    np.testing.assert_allclose(got, want, rtol=0, atol=ATOL if target == "oracle" else GPU_ATOL)
    arrays = decoder_arrays(given.files, given.model, capacity=32)
    codes = [x for name, x in arrays.items() if name.endswith(".codes")]
    assert {str(x.dtype) for x in codes} == {"float8_e4m3fn" if "fp8" in method else "uint32"}


@pytest.mark.parametrize("method", ["fp8", "gptq", "mxfp4"])
def test_no_decoded_matrix_is_stored(method: str, tmp_path: Path):
    given = read(save_coded(CODED[method], method, tmp_path))
    program = compile_with(given.graphs(32, (1,)), "h200", cache=False)
    plan = program.plan.entries[0]
    most = max(place.nbytes for step in plan.steps for place in step.outs)
    assert most <= 4 * 1024  # the least of these matrices has 6 KB in f32
    assert (
        program.memory().nbytes
        < compile_with(given.graphs(32, (1,), "f32"), "h200").memory().nbytes
    )


@pytest.mark.parametrize("method", ["gptq", "mxfp4"])
def test_codes_are_decoded_before_the_bind_where_another_dtype_is_asked_for(
    method: str, tmp_path: Path
):
    folder = save_coded(CODED[method], method, tmp_path)
    given, ids = read(folder), IDS[:16]
    arrays = decoder_arrays(given.files, given.model, capacity=32, dtype="f32")
    got = fed(on_oracle(given.graphs(32, (16,), "f32"), arrays), ids, [16])
    np.testing.assert_allclose(got, logits_of_values(folder, ids), rtol=0, atol=ATOL)


@pytest.mark.parametrize(
    "edits, words",
    [
        ({"dtype": "f64"}, "dtype is 'f64'; needs one of file, f32, bf16"),
        ({"capacity": 257}, "capacity is 257; needs 1 to the model's context of 256"),
        ({"buckets": (65,)}, r"buckets are \[65\]; needs sizes from 1 to 64"),
    ],
)
def test_options_out_of_range_are_named(edits: dict[str, object], words: str):
    given = tiny("llama2")
    asked = {"capacity": 64, "buckets": (1,), **edits}
    with pytest.raises(RequestError, match=words):
        decoder_graphs(given.files, given.model, **asked)


def test_only_the_last_rows_logits_come_where_not_all_are_asked_for():
    given = tiny("gemma2")
    graphs = decoder_graphs(given.files, given.model, capacity=64, buckets=(1, 16))
    assert [str(v.type) for v in graphs["prefill_16"].outputs[:1]] == ["f32[97]"]
    assert "last" in {i.name for i in graphs["prefill_16"].inputs}
