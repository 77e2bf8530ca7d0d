"""Adapters: PEFT's files, what is refused, and that a step computes what the adapter says."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
import torch
from safetensors.numpy import save_file
from safetensors.torch import save_file as save_torch

from poot.errors import FormatError, RequestError
from poot.llm.adapters import Adapter, AdapterShelf, Modules, read_adapter
from poot.llm.engine import Engine
from poot.llm.models.paged_llama import llama_modules
from poot.llm.request import Request
from tests.support.numpy_llama import numpy_llama
from tests.support.paged_fake import LAYOUT, FakeSession
from tests.support.paged_tiny import LAYOUT as TINY
from tests.support.paged_tiny import config, session, tiny

RANK, HEAD = 4, 16
SHAPES = {
    "self_attn.q_proj": (64, 64), "self_attn.k_proj": (64, 32), "self_attn.v_proj": (64, 32),
    "self_attn.o_proj": (64, 64), "mlp.gate_proj": (64, 96), "mlp.up_proj": (64, 96),
    "mlp.down_proj": (96, 64),
}  # fmt: skip
NAMES = {
    "q_proj": "attn_q", "k_proj": "attn_k", "v_proj": "attn_v", "o_proj": "attn_output",
    "gate_proj": "ffn_gate", "up_proj": "ffn_up", "down_proj": "ffn_down",
}  # fmt: skip


def tensors_of(seed: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    made: dict[str, np.ndarray] = {}
    for layer in range(2):
        for module, (wide, out) in SHAPES.items():
            key = f"base_model.model.model.layers.{layer}.{module}"
            made[f"{key}.lora_A.weight"] = rng.standard_normal((RANK, wide)).astype(np.float32)
            made[f"{key}.lora_B.weight"] = rng.standard_normal((out, RANK)).astype(np.float32) / 4
    return made


def write(
    folder: Path, tensors: Mapping[str, np.ndarray], config: Mapping[str, object] | None = None
) -> Path:
    """An adapter as PEFT saves it."""
    folder.mkdir(exist_ok=True)
    base = {"peft_type": "LORA", "r": RANK, "lora_alpha": 8, "bias": "none", "use_dora": False}
    (folder / "adapter_config.json").write_text(json.dumps(base | dict(config or {})))
    save_file(dict(tensors), folder / "adapter_model.safetensors")
    return folder


def read(folder: Path) -> Adapter:
    return read_adapter(folder, Modules(llama_modules(config()), {"q": 4, "k": 2}))


def merged(tensors: Mapping[str, np.ndarray], scale: float):
    """The reference with the adapter's products added to its weights. GGUF's q and k have the two
    halves of a head's rows interleaved."""
    model = numpy_llama(tiny(), config())
    weights = dict(model.weights)
    for layer in range(2):
        for module in SHAPES:
            key = f"base_model.model.model.layers.{layer}.{module}"
            change = scale * tensors[f"{key}.lora_B.weight"] @ tensors[f"{key}.lora_A.weight"]
            if module[-6:] in ("q_proj", "k_proj"):
                order = np.arange(HEAD).reshape(2, -1).T.reshape(-1)
                heads = change.reshape(-1, HEAD, change.shape[1])
                change = heads[:, order].reshape(change.shape)
            name = f"blk.{layer}.{NAMES[module.split('.')[1]]}.weight"
            weights[name] = weights[name] + change
    return replace(model, weights=weights)


@pytest.mark.parametrize("target", ["oracle", "cpu"])
def test_rows_of_two_adapters_and_none_agree_with_merged_weights(target: str, tmp_path: Path):
    layout = replace(TINY, adapters=2, rank=RANK)
    engine = Engine(session(target, layout), layout, vocab=config().vocab, weights="tiny")
    texts = {}
    for name, seed in (("a", 1), ("b", 2)):
        tensors = tensors_of(seed)
        engine.load_adapter(name, read(write(tmp_path / name, tensors)))
        texts[name] = merged(tensors, 2.0)
    texts[None] = numpy_llama(tiny(), config())
    prompt = tuple(range(30, 50))
    handles = {name: engine.submit(Request(prompt, 6, adapter=name, logprobs=1)) for name in texts}
    engine.run()
    seen = set()
    for name, model in texts.items():
        logits = model(list(prompt))[-1]
        result = handles[name].result(0)
        seen.add(result.tokens)
        for token, row in zip(result.tokens, result.logprobs, strict=True):
            wide = logits.astype(np.float64)
            assert row.logprob == pytest.approx(wide[token] - np.log(np.exp(wide).sum()), abs=1e-3)
            assert row.top[0][0] == token
            logits = model([token])[-1]
    assert len(seen) == 3


def test_bf16_factors_root_scales_and_a_lower_rank_are_read(tmp_path: Path):
    tensors = {k: v.astype(ml_dtypes.bfloat16) for k, v in tensors_of(0).items()}
    plain = read(write(tmp_path / "plain", tensors))
    root = read(write(tmp_path / "root", tensors, {"use_rslora": True}))
    np.testing.assert_allclose(root.factors[0, "q"][1], plain.factors[0, "q"][1] * 2)
    assert plain.factors[1, "down"][0].shape == (RANK, 96)
    assert plain.factors[1, "down"][1].shape == (RANK, 64)
    assert plain.factors[0, "v"][0].dtype == np.float32


@pytest.mark.parametrize(
    "change, words",
    [
        ({"use_dora": True}, "use_dora is True; poot does no such adapter"),
        ({"bias": "all"}, "bias is 'all'"),
        ({"peft_type": "IA3"}, "peft_type is 'IA3'"),
        ({"rank_pattern": {"q_proj": 2}}, "rank_pattern"),
        ({"modules_to_save": ["lm_head"]}, "modules_to_save"),
        ({"r": 0}, "r is 0"),
        ({"r": True}, "r is True"),
        ({"r": 8}, r"needs lora_A \[8, in\]"),
        ({"lora_alpha": None}, "lora_alpha is None"),
    ],
)
def test_an_adapter_of_another_kind_is_refused(
    change: dict[str, object], words: str, tmp_path: Path
):
    with pytest.raises(FormatError, match=words):
        read(write(tmp_path / "x", tensors_of(0), change))


def test_files_that_are_not_what_they_say_are_refused(tmp_path: Path):
    good = tensors_of(0)
    key = next(iter(good))
    cases = {
        "no tensor": ({}, "holds no adapter"),
        "strange": ({"base_model.model.lm_head.lora_A.weight": good[key]}, "is no LoRA factor"),
        "half": ({key: good[key]}, "needs lora_A"),
        "nan": ({key: np.full_like(good[key], np.nan)}, "finite numbers"),
        "one axis": ({key: good[key][0]}, "two axes"),
    }
    for name, (tensors, words) in cases.items():
        with pytest.raises(FormatError, match=words):
            read(write(tmp_path / name, tensors))
    folder = write(tmp_path / "torn", good)
    file = folder / "adapter_model.safetensors"
    file.write_bytes(file.read_bytes()[:200])
    with pytest.raises(FormatError, match="can't be read"):
        read(folder)
    (folder / "adapter_config.json").write_text("[1]")
    with pytest.raises(FormatError, match="is no JSON object"):
        read(folder)
    (folder / "adapter_config.json").write_text("{")
    with pytest.raises(FormatError, match="can't be read"):
        read(folder)
    with pytest.raises(FormatError, match="can't be read"):
        read(tmp_path / "nowhere")


def one(rank: int = 1, wide: int = 2, out: int = 3, layer: int = 0, matrix: str = "q") -> Adapter:
    factors = (np.ones((rank, wide), np.float32), np.ones((rank, out), np.float32))
    return Adapter(rank, {(layer, matrix): factors})


@pytest.mark.parametrize(
    "adapter, words",
    [
        (one(rank=9), "is of rank 9; the program has room for 8"),
        (one(wide=5), r"needs \[1, 2\] and \[1, 3\]"),
        (one(layer=7), "for q of layer 7, which the program doesn't adapt"),
        (one(matrix="head"), "doesn't adapt"),
    ],
)
def test_an_adapter_that_does_not_fit_is_refused_and_changes_nothing(adapter: Adapter, words: str):
    fake = FakeSession()
    shelf = AdapterShelf(fake, LAYOUT)
    with pytest.raises(RequestError, match=words):
        shelf.load("x", adapter)
    assert shelf.names == ()
    assert not fake.state["lora.0.q.b"].any()


def test_places_are_used_again_when_nobody_runs_with_them():
    shelf = AdapterShelf(FakeSession(), LAYOUT)
    for n in range(3):
        shelf.load(str(n), one())
    place = shelf.hold("1")
    shelf.unload("1")
    with pytest.raises(RequestError, match="all 3 places"):
        shelf.load("late", one())
    before = shelf.generation(place)
    shelf.let_go(place)
    shelf.load("late", one())
    assert shelf.need("late") == place
    assert shelf.generation(place) > before
    assert (shelf.generation(0), shelf.names) == (0, ("0", "2", "late"))
    with pytest.raises(RequestError, match="needs a name"):
        shelf.load("", one())


@pytest.mark.parametrize("alpha", ["1" + "0" * 400, "1" + "0" * 9000, "1e308", "NaN", "-1e9"])
def test_a_scale_that_is_absurd_is_refused(alpha: str, tmp_path: Path):
    write(tmp_path, tensors_of(1))
    text = f'{{"peft_type": "LORA", "r": 4, "lora_alpha": {alpha}}}'
    (tmp_path / "adapter_config.json").write_text(text)
    with pytest.raises(FormatError) as e:
        read(tmp_path)
    assert len(e.value.message) < 250


@pytest.mark.parametrize("text", ["[" * 100_000, '{"bias": ' + "[" * 900 + "]" * 900 + "}"])
def test_a_configuration_that_nests_deep_is_refused(text: str, tmp_path: Path):
    write(tmp_path, tensors_of(1))
    (tmp_path / "adapter_config.json").write_text(text)
    with pytest.raises(FormatError):
        read(tmp_path)


def test_factors_that_the_scale_makes_infinite_are_refused(tmp_path: Path):
    big = {k: np.full_like(v, 1e37) for k, v in tensors_of(1).items()}
    with pytest.raises(FormatError, match="passes what f32 holds"):
        read(write(tmp_path, big, {"lora_alpha": 4096}))


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.float8_e5m2, torch.int64])
def test_factors_of_dtypes_that_hold_no_adapter_are_refused(dtype: torch.dtype, tmp_path: Path):
    write(tmp_path, tensors_of(1))
    held = {k: torch.tensor(v).to(dtype) for k, v in tensors_of(1).items()}
    save_torch(held, tmp_path / "adapter_model.safetensors")
    with pytest.raises(FormatError, match="adapter_model"):
        read(tmp_path)
