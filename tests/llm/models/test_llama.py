"""Llama over the oracle, against an independent numpy decoder."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from poot.errors import FormatError, RequestError
from poot.ir.graph import Graph, Slot, State, Weight
from poot.llm.config import LlamaConfig, read_llama_config
from poot.llm.generate import chunks
from poot.llm.gguf_file import GgufFile, read_gguf
from poot.llm.models.llama import entry_name, llama_arrays, llama_graphs
from poot.llm.tokenizer import read_tokenizer
from poot.oracle import run
from tests.support.numpy_llama import numpy_llama
from tests.support.smollm2 import smollm2, smollm2_path
from tests.support.tiny_llama import write_tiny_llama

TEXT = (
    "A compiler takes a program apart, proves what it may change, and puts it together again so "
    "that the machine at hand runs it fast. The hard part is to stay honest: every step must mean "
    "what the one before it meant, and every refusal must say why it was made. What is measured is "
    "written down, with the machine that it was measured on."
)
IDS = [int(token) for token in np.random.default_rng(1).integers(0, 263, 40)]


@dataclass(slots=True)
class Run:
    """A model on the oracle: weights, and the State that each step moves on."""

    graphs: dict[str, Graph]
    weights: dict[str, np.ndarray]
    states: dict[str, np.ndarray] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for i in next(iter(self.graphs.values())).inputs:
            if isinstance(i.storage, State):
                self.states[i.name] = np.zeros(i.var.type.shape, np.float32)

    def step(self, tokens: list[int], pos: int, last: int | None = None) -> np.ndarray:
        slots = {"tokens": np.array(tokens, np.int32), "pos": np.array(pos, np.int32)}
        if last is not None:
            slots["last"] = np.array(last, np.int32)
        result = run(self.graphs[entry_name(len(tokens))], self.weights | self.states | slots)
        self.states.update(result.states)
        return result.outputs[0]


def build(
    file: GgufFile,
    config: LlamaConfig,
    buckets: tuple[int, ...],
    *,
    capacity: int = 64,
    dtype: str = "file",
    all_logits: bool = False,
) -> Run:
    graphs = llama_graphs(
        file, config, capacity=capacity, buckets=buckets, dtype=dtype, all_logits=all_logits
    )
    return Run(graphs, llama_arrays(file, config, capacity=capacity, dtype=dtype))


@pytest.fixture
def tiny(tmp_path: Path) -> GgufFile:
    return read_gguf(write_tiny_llama(tmp_path / "tiny.gguf"))


@pytest.mark.parametrize("dtype", ["file", "f32"])
@pytest.mark.parametrize(
    "embedding, linear, tied",
    [("Q8_0", "Q4_1", True), ("Q4_1", "Q8_0", False), ("F32", "F32", True)],
)
def test_logits_agree_with_numpy_in_chunks_and_token_by_token(
    embedding: str, linear: str, tied: bool, dtype: str, tmp_path: Path
):
    path = tmp_path / "tiny.gguf"
    file = read_gguf(write_tiny_llama(path, embedding=embedding, linear=linear, tied=tied))
    config = read_llama_config(file)
    want = numpy_llama(file, config)(IDS)
    model = build(file, config, (1, 16), dtype=dtype, all_logits=True)
    got = [model.step(IDS[:16], 0), model.step(IDS[16:32], 16)]
    got += [model.step([token], 32 + i) for i, token in enumerate(IDS[32:])]
    # f32 sums of at most 96 products of unit size, in another order, through 2 layers.
    np.testing.assert_allclose(np.concatenate(got), want, rtol=0, atol=5e-5)


def test_weights_rounded_to_bf16_are_the_weights_of_every_product(tmp_path: Path):
    """Logits as those of an f32 model whose matrices were rounded before."""
    file = read_gguf(write_tiny_llama(tmp_path / "tiny.gguf", embedding="F32", linear="F32"))
    config = read_llama_config(file)
    short, whole = (
        build(file, config, (16,), dtype=dtype, all_logits=True) for dtype in ("bf16", "f32")
    )
    for name, array in short.weights.items():
        whole.weights[name] = array.astype(np.float32)
    np.testing.assert_array_equal(short.step(IDS[:16], 0), whole.step(IDS[:16], 0))


def test_padding_changes_no_logit_and_is_written_over(tiny: GgufFile):
    config = read_llama_config(tiny)
    want = numpy_llama(tiny, config)(IDS)
    model = build(tiny, config, (1, 4, 16), capacity=40)
    for chunk in chunks(0, 39, (1, 4, 16), 40):
        tokens = IDS[chunk.start : chunk.start + chunk.length]
        padded = tokens + [7] * (chunk.bucket - chunk.length)
        last = chunk.length - 1 if chunk.bucket > 1 else None
        got = model.step(padded, chunk.start, last)
        np.testing.assert_allclose(got, want[chunk.start + chunk.length - 1], rtol=0, atol=5e-5)
    np.testing.assert_allclose(model.step(IDS[39:], 39), want[39], rtol=0, atol=5e-5)


def test_what_stands_past_the_written_positions_never_reaches_the_logits(tiny: GgufFile):
    """Hidden keys weigh exactly 0, so finite rubbish behind the mask changes no bit."""
    config = read_llama_config(tiny)
    clean, dirty = (build(tiny, config, (1, 4)) for _ in range(2))
    for name, state in dirty.states.items():
        dirty.states[name] = np.full_like(state, 1e4)
    for model in (clean, dirty):
        model.step(IDS[:4], 0, 3)
    np.testing.assert_array_equal(clean.step([9], 4), dirty.step([9], 4))


def test_inputs_have_names_storages_and_ranges(tiny: GgufFile):
    graph = build(tiny, read_llama_config(tiny), (16,)).graphs["prefill_16"]
    inputs = {i.name: i for i in graph.inputs}
    assert inputs["tokens"].storage == Slot("tokens", (0, 263))
    assert inputs["pos"].storage == Slot("pos", (0, 49))
    assert inputs["last"].storage == Slot("user", (0, 16))
    assert isinstance(inputs["kv.1.v"].storage, State)
    assert str(inputs["kv.1.v"].var.type) == "f32[1,2,64,16]"
    assert isinstance(inputs["w.layers.1.down.codes"].storage, Weight)
    assert str(inputs["w.layers.1.down.codes"].var.type) == "u32[64,12]"
    assert len(graph.states) == 4


@pytest.mark.parametrize("dtype", ["file", "f32", "bf16"])
def test_arrays_are_the_graphs_weights_by_name_dtype_and_shape(dtype: str, tmp_path: Path):
    file = read_gguf(write_tiny_llama(tmp_path / "tiny.gguf", tied=False))
    model = build(file, read_llama_config(file), (1,), dtype=dtype)
    weights = [i for i in model.graphs["decode"].inputs if isinstance(i.storage, Weight)]
    assert {i.name for i in weights} == model.weights.keys()
    short = {"float32": "f32", "float16": "f16", "uint32": "u32", "bfloat16": "bf16"}
    for i in weights:
        array = model.weights[i.name]
        assert (short[array.dtype.name], array.shape) == (i.var.type.dtype, i.var.type.shape)


def test_smollm2_stays_in_its_own_codes():
    file = smollm2()
    arrays = llama_arrays(file, read_llama_config(file), capacity=2048)
    assert sum(a.nbytes for a in arrays.values()) <= 1.2 * smollm2_path().stat().st_size


@cache
def smollm2_reference() -> tuple[list[int], np.ndarray]:
    """64 tokens of a fixed text and numpy's logits for each."""
    file = smollm2()
    ids = read_tokenizer(file.metadata, "smollm2").encode(TEXT)[:64]
    assert len(ids) == 64
    return ids, numpy_llama(file, read_llama_config(file))(ids)


@pytest.mark.slow
@pytest.mark.parametrize(
    "dtype, cuts",
    [
        ("file", [60, 1, 1, 1, 1]),
        ("f32", [64]),
        ("f32", [16] * 4),
        ("f32", [1] * 64),
    ],
    ids=["in its codes", "in one piece", "in chunks", "token by token"],
)
def test_smollm2_agrees_with_numpy_over_64_tokens(dtype: str, cuts: list[int]):
    ids, want = smollm2_reference()
    file = smollm2()
    buckets = tuple(sorted(set(cuts)))
    model = build(file, read_llama_config(file), buckets, dtype=dtype, all_logits=True)
    got: list[np.ndarray] = []
    for length in cuts:
        pos = sum(len(part) for part in got)
        got.append(model.step(ids[pos : pos + length], pos))
    # Logits reach 30, and the f32 sums of 30 layers differ in order.
    np.testing.assert_allclose(np.concatenate(got), want, rtol=0, atol=2e-3)


@pytest.mark.parametrize(
    "dtype, capacity, buckets, words",
    [
        ("f64", 64, (1,), "dtype is 'f64'; needs one of file, f32, bf16"),
        ("file", 0, (1,), "capacity is 0"),
        ("file", 129, (1,), "capacity is 129; needs 1 to the model's context of 128"),
        ("file", 64, (), r"buckets are \[\]"),
        ("file", 64, (0,), r"buckets are \[0\]"),
        ("file", 64, (1, 65), r"buckets are \[1, 65\]; needs sizes from 1 to 64"),
    ],
)
def test_options_out_of_range_are_named(
    dtype: str, capacity: int, buckets: tuple[int, ...], words: str, tiny: GgufFile
):
    config = read_llama_config(tiny)
    with pytest.raises(RequestError, match=words):
        llama_graphs(tiny, config, capacity=capacity, buckets=buckets, dtype=dtype)


def test_a_type_without_codes_runs_as_f32_only_when_asked(tmp_path: Path):
    path = write_tiny_llama(tmp_path / "tiny.gguf", embedding="Q4_0", linear="F16")
    file = read_gguf(path)
    config = read_llama_config(file)
    with pytest.raises(FormatError, match=r"token_embd.weight is Q4_0; .* with dtype f32"):
        build(file, config, (1,))
    want = numpy_llama(file, config)(IDS[:4])
    model = build(file, config, (4,), dtype="f32", all_logits=True)
    np.testing.assert_allclose(model.step(IDS[:4], 0), want, rtol=0, atol=5e-5)
