"""Adapters of tiny models, as PEFT saves them, and what `transformers` makes of them merged."""

from __future__ import annotations

import copy
import json
from pathlib import Path

import numpy as np
import torch
from safetensors.numpy import load_file, save_file

from poot.llm.models.parts.places import lora_modules, lora_targets
from tests.support.hf_run import Tiny
from tests.support.hf_tiny import tiny_model


def write_adapter(given: Tiny, folder: Path) -> Path:
    """An adapter as PEFT saves it, on every module that may have one."""
    rng = np.random.default_rng(5)
    tensors: dict[str, np.ndarray] = {}
    for module, (layer, name) in lora_modules(given.model).items():
        wide, out = lora_targets(given.model.layers[layer], given.model.width)[name]
        key = f"base_model.model.{given.model.names['prefix']}{module}"
        tensors[f"{key}.lora_A.weight"] = rng.standard_normal((2, wide)).astype(np.float32) / 8
        tensors[f"{key}.lora_B.weight"] = rng.standard_normal((out, 2)).astype(np.float32) / 2
    folder.mkdir()
    said = {"peft_type": "LORA", "r": 2, "lora_alpha": 4, "bias": "none", "use_dora": False}
    (folder / "adapter_config.json").write_text(json.dumps(said))
    save_file(tensors, folder / "adapter_model.safetensors")
    return folder


def merged_logits(name: str, folder: Path, ids: list[int], vocab: int = 97) -> np.ndarray:
    """What `transformers` computes with the adapter's products added to the weights."""
    tensors = load_file(folder / "adapter_model.safetensors")
    model = copy.deepcopy(tiny_model(name, vocab))
    weights = model.state_dict()
    for key in tensors:
        if key.endswith(".lora_A.weight"):
            module = key.removesuffix(".lora_A.weight")
            change = 2.0 * tensors[f"{module}.lora_B.weight"] @ tensors[key]
            weights[f"{module.removeprefix('base_model.model.')}.weight"] += torch.tensor(change)
    with torch.no_grad():
        return model(torch.tensor([ids])).logits[0].numpy()
