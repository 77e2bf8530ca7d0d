"""Tiny checkpoints with matrices in codes, and `transformers` over the values that these stand for.

Coders of each method's own layout, element by element where that is how it is specified."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import ml_dtypes
import numpy as np
import torch
import transformers
from safetensors.numpy import load_file
from safetensors.torch import save_file

from tests.support.hf_run import saved

Parts = dict[str, np.ndarray]
Coded = tuple[Parts, np.ndarray]  # the tensors that a checkpoint has, and the values
Coder = Callable[[str, np.ndarray], Coded]
MX_VALUES = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
AWQ_ORDER = (0, 2, 4, 6, 1, 3, 5, 7)  # the column that each four bits of a word hold, lowest first


def fp8(name: str, w: np.ndarray, block: tuple[int, int] = (20, 4)) -> Coded:
    """A scale a block, at the ends of columns a block of what is left."""
    rows, columns = block
    grid = -(-w.shape[0] // rows), -(-w.shape[1] // columns)
    scales, codes, values = np.zeros(grid, np.float32), w.astype(ml_dtypes.float8_e4m3fn), w.copy()
    for i in range(grid[0]):
        for j in range(grid[1]):
            at = np.s_[i * rows : (i + 1) * rows, j * columns : (j + 1) * columns]
            scales[i, j] = np.abs(w[at]).max() / 448
            codes[at] = (w[at] / scales[i, j]).astype(ml_dtypes.float8_e4m3fn)
            values[at] = codes[at].astype(np.float32) * scales[i, j]
    return {name: codes, f"{name}_scale_inv": scales}, values


def fp8_rows(name: str, w: np.ndarray) -> Coded:
    """A scale a row, or of every other matrix one for all."""
    axis = 1 if sum(map(ord, name)) % 2 else None
    scales = np.abs(w).max(axis=axis, keepdims=True).astype(np.float32) / np.float32(448)
    codes = (w / scales).astype(ml_dtypes.float8_e4m3fn)
    held = scales if axis == 1 else scales.reshape(1)
    return {name: codes, f"{name}_scale": held}, codes.astype(np.float32) * scales


def groups_of(w: np.ndarray, size: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """(codes u8 like w, scales f16 and zeros u8 [out, groups], values)."""
    apart = w.reshape(w.shape[0], -1, size)
    low, high = np.minimum(apart.min(-1), 0), np.maximum(apart.max(-1), 0)
    scales = ((high - low) / 15).astype(np.float16)
    wide = scales.astype(np.float32)
    zeros = np.clip(np.round(-low / wide), 1, 15)
    codes = np.clip(np.round(apart / wide[..., None]) + zeros[..., None], 0, 15)
    values = (codes - zeros[..., None]) * wide[..., None]
    return (
        codes.reshape(w.shape).astype(np.uint8),
        scales,
        zeros.astype(np.uint8),
        (values.reshape(w.shape).astype(np.float32)),
    )


def packed(codes: np.ndarray, order: tuple[int, ...]) -> np.ndarray:
    """i32 [rows, columns / 8]: four bits of a word hold the column that `order` says."""
    words = np.zeros((codes.shape[0], codes.shape[1] // 8), np.uint32)
    for column in range(words.shape[1]):
        for place, which in enumerate(order):
            held = codes[:, 8 * column + which].astype(np.uint32)
            words[:, column] |= held << np.uint32(4 * place)
    return words.view(np.int32)


def awq(name: str, w: np.ndarray, size: int = 16) -> Coded:
    codes, scales, zeros, values = groups_of(w, size)
    base = name.removesuffix(".weight")
    return {
        f"{base}.qweight": packed(codes.T, AWQ_ORDER), f"{base}.scales": scales.T,
        f"{base}.qzeros": packed(zeros.T, AWQ_ORDER),
    }, values  # fmt: skip


def gptq(name: str, w: np.ndarray, size: int = 16, zero: int = 1) -> Coded:
    """Zeros are stored less one, but in the second version."""
    codes, scales, zeros, values = groups_of(w, size)
    base = name.removesuffix(".weight")
    return {
        f"{base}.qweight": packed(codes, tuple(range(8))).T, f"{base}.scales": scales.T,
        f"{base}.qzeros": packed(zeros.T - zero, tuple(range(8))),
        f"{base}.g_idx": np.arange(w.shape[1], dtype=np.int32) // size,
    }, values  # fmt: skip


def mxfp4(name: str, w: np.ndarray) -> Coded:
    """w [experts, in, out]; codes lie along `in`, 32 a scale."""
    turned = np.swapaxes(w, 1, 2)
    apart = turned.reshape(*turned.shape[:2], -1, 32)
    power = np.ceil(np.log2(np.abs(apart).max(-1) / 6)).astype(np.int32)
    scaled = apart / np.exp2(power)[..., None]
    table = np.array([*MX_VALUES, *(-x for x in MX_VALUES)])
    codes = np.abs(scaled[..., None] - table).argmin(-1).astype(np.uint8)
    values = (table[codes] * np.exp2(power)[..., None]).reshape(turned.shape)
    pairs = codes.reshape(*codes.shape[:-1], 16, 2)
    return {
        f"{name}_blocks": pairs[..., 0] | pairs[..., 1] << 4,
        f"{name}_scales": (power + 127).astype(np.uint8),
    }, np.swapaxes(values, 1, 2).astype(np.float32)  # fmt: skip


def _weights_said(**said: object) -> dict[str, object]:
    return {"config_groups": {"group_0": {"targets": ["Linear"], "weights": said}}}


@dataclass(frozen=True, slots=True)
class Kind:
    """A coder, the names of what it is for, and what config.json says."""

    code: Coder
    ends: tuple[str, ...]
    said: Mapping[str, object]


MATRICES = ("proj.weight", "proj_with_mqa.weight", "w1.weight", "w2.weight", "w3.weight")
KINDS: Mapping[str, Kind] = {
    "fp8": Kind(fp8, MATRICES, {"quant_method": "fp8", "fmt": "e4m3", "weight_block_size": [20, 4],
                                "activation_scheme": "dynamic"}),
    "fp8_rows": Kind(fp8_rows, MATRICES, {
        "quant_method": "compressed-tensors", "format": "float-quantized",
        **_weights_said(num_bits=8, type="float", strategy="channel")}),
    "awq": Kind(awq, MATRICES, {"quant_method": "awq", "bits": 4, "group_size": 16,
                                "zero_point": True, "version": "gemm"}),
    "gptq": Kind(gptq, MATRICES, {"quant_method": "gptq", "bits": 4, "group_size": 16,
                                  "desc_act": False, "sym": False}),
    "mxfp4": Kind(mxfp4, ("experts.gate_up_proj", "experts.down_proj"),
                  {"quant_method": "mxfp4", "modules_to_not_convert": ["lm_head"]}),
}  # fmt: skip


def save(tensors: Parts, folder: Path) -> None:
    """The tensors as `model.safetensors`."""
    made: dict[str, torch.Tensor] = {}
    for name, array in tensors.items():
        held = np.array(array, order="C")
        if held.dtype == ml_dtypes.float8_e4m3fn:
            made[name] = torch.from_numpy(held.view(np.uint8)).view(torch.float8_e4m3fn)
        else:
            made[name] = torch.from_numpy(held)
    save_file(made, folder / "model.safetensors")


def save_coded(name: str, method: str, folder: Path) -> Path:
    """The tiny model in codes, in `folder`; beside it, in `values`, the model of their values."""
    kind, base = KINDS[method], saved(name)
    coded: Parts = {}
    plain: Parts = {}
    for key, w in load_file(base / "model.safetensors").items():
        parts, values = ({key: w}, w)
        if ".layers." in key and key.endswith(kind.ends):
            parts, values = kind.code(key, w)
        coded |= parts
        plain[key] = values
    assert len(coded) > len(plain)
    shutil.copytree(base, folder / "values")
    save(plain, folder / "values")
    save(coded, folder)
    config = json.loads((base / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"quantization_config": kind.said}))
    return folder


def logits_of_values(folder: Path, ids: list[int]) -> np.ndarray:
    """What `transformers` computes with the values that the codes of `save_coded` stand for."""
    model = transformers.AutoModelForCausalLM.from_pretrained(
        folder / "values", attn_implementation="eager", dtype=torch.float32
    )
    with torch.no_grad():
        return model.eval()(torch.tensor([ids])).logits[0].numpy()
