"""Where weights lie in a checkpoint, and checkpoints that don't hold them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from poot.errors import FormatError
from poot.llm.models.parts.places import layer_places, prefix_of
from tests.support.hf_run import IDS, fed, read, saved, stepper, tiny
from tests.support.hf_tiny import hf_logits, save_tiny

NORM = "model.layers.1.input_layernorm.weight"
EXPERT = "model.layers.1.block_sparse_moe.experts.2.w1.weight"


def edited(name: str, folder: Path, edits: dict[str, np.ndarray | None]) -> Path:
    """The checkpoint of a tiny model with tensors replaced; None takes one out."""
    tensors = load_file(saved(name) / "model.safetensors") | edits
    save_file({k: v for k, v in tensors.items() if v is not None}, folder / "model.safetensors")
    (folder / "config.json").write_text((saved(name) / "config.json").read_text())
    return folder


@pytest.mark.parametrize(
    "name, edits, words",
    [
        ("llama2", {NORM: None}, f"there is no tensor {NORM}"),
        (
            "llama2",
            {NORM: np.ones(47, np.float32)},
            r"has shape \[47\]; config.json makes it \[48\]",
        ),
        ("llama2", {NORM: np.ones(48, np.int32)}, f"tensor {NORM} is I32; poot reads weights of"),
        (
            "llama2",
            {"model.extra": np.ones(1, np.float32)},
            "poot's Llama has no tensor model.extra",
        ),
        ("mixtral", {EXPERT: None}, f"there is no tensor {EXPERT}"),
        (
            "mixtral",
            {EXPERT: np.ones((64, 48), np.float16)},
            "one dtype for all experts of a layer",
        ),
        (
            "deepseek_v3",
            {"model.layers.4.x": np.ones(1, np.float32)},
            "has no tensor model.layers.4",
        ),
    ],
)
def test_a_checkpoint_that_is_not_its_config_is_refused_by_tensor(
    name: str, edits: dict[str, np.ndarray | None], words: str, tmp_path: Path
):
    with pytest.raises(FormatError, match=words):
        read(edited(name, tmp_path, edits))


def test_what_changes_no_logit_may_stand_there(tmp_path: Path):
    extra: dict[str, np.ndarray | None] = {
        "model.layers.0.self_attn.rotary_emb.inv_freq": np.ones(6, np.float32)
    }
    read(edited("llama2", tmp_path, extra))
    draft: dict[str, np.ndarray | None] = {"model.layers.3.eh_proj.weight": np.ones(1, np.float32)}
    read(edited("deepseek_v3", tmp_path, draft))


def test_a_base_model_saved_by_itself_has_no_prefix(tmp_path: Path):
    tensors = load_file(saved("bloom") / "model.safetensors")
    bare = {name.removeprefix("transformer."): v for name, v in tensors.items()}
    save_file(bare, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text((saved("bloom") / "config.json").read_text())
    given = read(tmp_path)
    assert prefix_of(given.model, given.files) == ""
    got = fed(stepper(given, "oracle", 64, (16,)), IDS[:16], [16])
    np.testing.assert_allclose(got, hf_logits("bloom", IDS[:16]), rtol=0, atol=1e-4)


def test_a_checkpoint_in_shards_is_the_same_model(tmp_path: Path):
    given = read(save_tiny("mixtral", tmp_path, shard="60KB"))
    assert len(given.files.paths) > 2
    got = fed(stepper(given, "oracle", 64, (16,)), IDS[:16], [16])
    np.testing.assert_allclose(got, hf_logits("mixtral", IDS[:16]), rtol=0, atol=1e-4)


def test_experts_are_one_weight_of_as_many_tensors():
    place = layer_places(tiny("mixtral").model, 1, "model.")["each_gate"]
    assert place.tensors[2] == EXPERT
    assert (place.shape, place.each) == ((4, 64, 48), (64, 48))
