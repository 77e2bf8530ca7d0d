"""The configuration that a checkpoint states, and what of it is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from poot.errors import FormatError
from poot.llm.config import LlamaConfig, read_llama_config
from poot.llm.gguf_file import read_gguf
from tests.support.smollm2 import smollm2
from tests.support.tiny_llama import vocabulary, write_tiny_llama


def read(path: Path) -> LlamaConfig:
    return read_llama_config(read_gguf(path))


def test_smollm2_states_what_is_known_of_it():
    assert read_llama_config(smollm2()) == LlamaConfig(
        layers=30,
        width=576,
        heads=9,
        kv_heads=3,
        head_dim=64,
        ffn=1536,
        vocab=49152,
        context=8192,
        norm_eps=float(np.float32(1e-5)),
        rope_theta=100000.0,
        rope_dim=64,
        tied=True,
    )


def test_a_tiny_checkpoint_reads_tied_and_untied(tmp_path: Path):
    tied = read(write_tiny_llama(tmp_path / "tied.gguf"))
    apart = read(write_tiny_llama(tmp_path / "apart.gguf", tied=False))
    assert (tied.tied, apart.tied) == (True, False)
    assert (tied.head_dim, tied.kv_heads, tied.vocab) == (16, 2, len(vocabulary()))


@pytest.mark.parametrize(
    "key, value, words",
    [
        ("llama.block_count", None, "llama.block_count is missing"),
        ("llama.block_count", 0, "llama.block_count is 0; needs an integer from 1"),
        ("llama.block_count", 4_000_000_000, "llama.block_count is 4000000000"),
        ("llama.block_count", "two", "llama.block_count is 'two'"),
        ("llama.block_count", True, "llama.block_count is True"),
        ("llama.block_count", 3, "no tensor blk.2.attn_norm.weight"),
        ("llama.block_count", 1, "has no tensor blk.1"),
        ("llama.embedding_length", 128, r"token_embd.weight has .*\[263, 64\].* \[263, 128\]"),
        ("llama.attention.head_count", 6, "head_count is 6; needs a divisor of the width 64"),
        ("llama.attention.head_count_kv", 3, "head_count_kv is 3; needs a divisor of 4 heads"),
        ("llama.attention.head_count_kv", 8, "head_count_kv is 8; needs an integer from 1 to 4"),
        ("llama.attention.value_length", 8, "value_length is 8; needs an integer from 16 to 16"),
        ("llama.rope.dimension_count", 7, "dimension_count is 7; needs an even number"),
        ("llama.rope.dimension_count", 18, "dimension_count is 18"),
        ("llama.rope.freq_base", float("nan"), "freq_base is nan"),
        ("llama.rope.freq_base", 0.0, "freq_base is 0.0"),
        ("llama.attention.layer_norm_rms_epsilon", float("inf"), "epsilon is inf"),
        ("llama.attention.layer_norm_rms_epsilon", -1.0, "epsilon is -1.0"),
        ("llama.feed_forward_length", 128, "ffn_gate.weight has shape"),
        ("llama.vocab_size", 999, "vocab_size is 999"),
        ("llama.context_length", 0, "context_length is 0"),
        ("llama.rope.scaling.type", "yarn", "scaling.type is 'yarn'; needs 'none'"),
        ("llama.expert_count", 8, "expert_count is 8"),
        ("llama.attention.sliding_window", 64, "sliding_window is 64"),
        ("llama.final_logit_softcapping", 30.0, "softcapping is 30.0"),
    ],
)
def test_a_key_that_does_not_hold_is_named_with_its_value(
    key: str, value: int | float | str | bool | None, words: str, tmp_path: Path
):
    path = write_tiny_llama(tmp_path / "m.gguf", keys={key: value})
    with pytest.raises(FormatError, match=words):
        read(path)


def test_another_architecture_is_refused(tmp_path: Path):
    path = write_tiny_llama(tmp_path / "m.gguf")
    raw = path.read_bytes()
    at = raw.index(b"llama", raw.index(b"general.architecture"))
    path.write_bytes(raw[:at] + b"gemma" + raw[at + 5 :])
    with pytest.raises(FormatError, match="architecture is 'gemma'"):
        read(path)


@pytest.mark.parametrize(
    "name, values, words",
    [
        ("blk.1.ffn_up.weight", None, "no tensor blk.1.ffn_up.weight"),
        ("output_norm.weight", np.ones(32, np.float32), r"output_norm.weight has shape \[32\]"),
        ("blk.0.attn_q.bias", np.ones(64, np.float32), "has no tensor blk.0.attn_q.bias"),
        ("rope_freqs.weight", np.ones(8, np.float32), "has no tensor rope_freqs.weight"),
    ],
)
def test_tensors_that_do_not_follow_from_the_keys_are_named(
    name: str, values: np.ndarray | None, words: str, tmp_path: Path
):
    path = write_tiny_llama(tmp_path / "m.gguf", tensors={name: values})
    with pytest.raises(FormatError, match=words):
        read(path)
