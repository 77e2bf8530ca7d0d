"""A checkpoint from file to tokens, on the oracle."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from poot.errors import BackendUnavailable, FormatError, RequestError
from poot.llm.load import LoadedModel, fitting, load_model, read_checkpoint
from poot.llm.sampling import Sampling
from tests.support.hf_run import saved
from tests.support.hf_tiny import hf_logits
from tests.support.json_bytes import byte_spec, write_tokenizer
from tests.support.numpy_llama import NumpyLlama, numpy_llama
from tests.support.smollm2 import smollm2_path
from tests.support.tiny_llama import write_tiny_llama


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return write_tiny_llama(tmp_path / "tiny.gguf")


def load(path: Path, **options: object) -> LoadedModel:
    given = {"target": "oracle", "capacity": 64, "buckets": (1, 16)} | options
    return load_model(read_checkpoint(path), **given)  # pyright: ignore[reportArgumentType] - named options of load_model


def greedy(model: NumpyLlama, prompt: list[int], count: int) -> list[int]:
    tokens = [int(np.argmax(model(prompt)[-1]))]
    while len(tokens) < count:
        tokens.append(int(np.argmax(model(tokens[-1:])[-1])))
    return tokens


def test_greedy_tokens_are_those_of_numpy(path: Path):
    model = load(path)
    prompt = model.checkpoint.prompt_ids("the a the an other the")
    got = list(model.generate(prompt, max_tokens=12, sampling=Sampling()))
    want = greedy(numpy_llama(model.checkpoint.file, model.checkpoint.config), prompt, 12)
    stops = [i for i, token in enumerate(want) if token in model.checkpoint.tokenizer.stops]
    assert got == want[: stops[0] if stops else 12]


def test_a_second_generation_starts_from_an_empty_cache(path: Path):
    model = load(path)
    prompt = model.checkpoint.prompt_ids("the a the")
    first, second = (
        list(model.generate(prompt, max_tokens=8, sampling=Sampling(temperature=0.7, seed=5)))
        for _ in range(2)
    )
    assert first == second


def test_progress_hears_the_stages_in_order(path: Path):
    heard: list[str] = []
    load(path, progress=lambda stage, done, total: heard.append(stage))
    assert list(dict.fromkeys(heard))[:2] == ["check weights", "trace"]
    assert heard[-1] == "bind weights"


def test_a_chat_prompt_is_rendered_and_its_control_tokens_encoded(path: Path):
    checkpoint = read_checkpoint(path)
    ids = checkpoint.prompt_ids("hi", chat=True)
    text = "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"
    assert checkpoint.tokenizer.decode(ids, keep_special=True) == text
    assert ids.count(1) == 2


def test_a_checkpoint_without_a_template_can_not_chat(tmp_path: Path):
    path = write_tiny_llama(tmp_path / "m.gguf", keys={"tokenizer.chat_template": None})
    with pytest.raises(RequestError, match=r"m.gguf has no chat template"):
        read_checkpoint(path).prompt_ids("hi", chat=True)


def test_capacity_and_buckets_follow_the_request(path: Path):
    checkpoint = read_checkpoint(path)
    assert fitting(checkpoint, 5, 8) == (64, (1, 16))
    assert fitting(checkpoint, 1, 8) == (64, (1,))
    assert fitting(checkpoint, 70, 8) == (128, (1, 16, 64))
    assert fitting(checkpoint, 120, 8) == (128, (1, 64))
    with pytest.raises(RequestError, match=r"120 tokens and 9 new ones pass .* context of 128"):
        fitting(checkpoint, 120, 9)


def test_a_weight_that_is_no_number_is_refused_by_name(tmp_path: Path):
    norm = np.ones(64, np.float32)
    norm[3] = np.nan
    path = write_tiny_llama(tmp_path / "m.gguf", tensors={"output_norm.weight": norm})
    with pytest.raises(FormatError, match=r"tensor output_norm.weight .* index \(3,\)"):
        load(path)


def test_a_target_that_is_not_there_is_refused(path: Path):
    with pytest.raises(BackendUnavailable, match="abacus"):
        load(path, target="abacus")


@pytest.mark.slow
def test_smollm2_says_that_the_capital_of_france_is_paris():
    checkpoint = read_checkpoint(smollm2_path())
    prompt = checkpoint.prompt_ids("The capital of France is")
    capacity, buckets = fitting(checkpoint, len(prompt), 2)
    model = load_model(checkpoint, target="oracle", capacity=capacity, buckets=buckets)
    tokens = list(model.generate(prompt, max_tokens=2, sampling=Sampling()))
    assert checkpoint.tokenizer.decode(tokens) == " Paris."


def folder_of(tmp_path: Path, name: str = "gemma2") -> Path:
    """A checkpoint folder with a vocabulary that its tokenizer fills."""
    shutil.copytree(saved(name, vocab=263), tmp_path / "m")
    return write_tokenizer(tmp_path / "m", byte_spec())


def test_a_folder_generates_what_transformers_does(tmp_path: Path):
    model = load(folder_of(tmp_path))
    prompt = model.checkpoint.prompt_ids("the a the")
    assert prompt[0] == 1
    got = list(model.generate(prompt, max_tokens=6, sampling=Sampling()))
    for i, token in enumerate(got):
        logits = hf_logits("gemma2", prompt + got[:i], vocab=263)[-1]
        assert logits[token] >= logits.max() - 1e-3


def test_a_folders_own_chat_template_makes_the_prompt(tmp_path: Path):
    checkpoint = read_checkpoint(folder_of(tmp_path))
    text = checkpoint.tokenizer.decode(checkpoint.prompt_ids("hi", chat=True), keep_special=True)
    assert text == "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"


def test_a_folder_of_an_unknown_architecture_is_refused_before_its_weights(tmp_path: Path):
    (tmp_path / "config.json").write_text('{"architectures": ["MambaForCausalLM"]}')
    with pytest.raises(FormatError, match="the architecture is MambaForCausalLM; poot has"):
        read_checkpoint(tmp_path)
