"""A Llama decoder in plain numpy, f32. It shares no code with poot's models: an independent
opinion of what a checkpoint computes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from poot.llm.config import LlamaConfig
from poot.llm.gguf_file import GgufFile

F32 = NDArray[np.float32]


@dataclass(slots=True)
class NumpyLlama:
    """Weights by GGUF name, linear ones [out, in]; the cache grows with each call."""

    weights: Mapping[str, F32]
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    theta: float
    eps: float
    keys: list[F32] = field(default_factory=list)
    values: list[F32] = field(default_factory=list)

    def __post_init__(self) -> None:
        empty = np.zeros((self.kv_heads, 0, self.head_dim), np.float32)
        self.keys = [empty] * self.layers
        self.values = [empty] * self.layers

    @property
    def length(self) -> int:
        return self.keys[0].shape[1]

    def __call__(self, ids: list[int]) -> F32:
        """Logits [len(ids), vocab] of every row, the tokens standing after all earlier ones."""
        x = self.weights["token_embd.weight"][np.array(ids)]
        positions = self.length + np.arange(len(ids))
        for layer in range(self.layers):
            x = x + self._attention(layer, self._norm(x, f"blk.{layer}.attn_norm"), positions)
            x = x + self._feed_forward(layer, self._norm(x, f"blk.{layer}.ffn_norm"))
        head = self.weights.get("output.weight", self.weights["token_embd.weight"])
        return self._norm(x, "output_norm") @ head.T

    def _linear(self, x: F32, name: str) -> F32:
        return x @ self.weights[f"{name}.weight"].T

    def _norm(self, x: F32, name: str) -> F32:
        mean_square = np.mean(x * x, axis=-1, keepdims=True)
        return x / np.sqrt(mean_square + np.float32(self.eps)) * self.weights[f"{name}.weight"]

    def _turn(self, x: F32, positions: NDArray[np.int64]) -> F32:
        """RoPE over pairs (0, 1), (2, 3), ... of x [heads, n, head_dim]."""
        rates = self.theta ** (-np.arange(0, self.head_dim, 2) / self.head_dim)
        turned = (x[..., 0::2] + 1j * x[..., 1::2]) * np.exp(1j * positions[:, None] * rates)
        return np.stack([turned.real, turned.imag], axis=-1).reshape(x.shape).astype(np.float32)

    def _attention(self, layer: int, h: F32, positions: NDArray[np.int64]) -> F32:
        def heads(name: str, count: int) -> F32:
            rows = self._linear(h, f"blk.{layer}.{name}")
            return rows.reshape(len(h), count, self.head_dim).transpose(1, 0, 2)

        q = self._turn(heads("attn_q", self.heads), positions)
        k = self._turn(heads("attn_k", self.kv_heads), positions)
        self.keys[layer] = np.concatenate([self.keys[layer], k], axis=1)
        self.values[layer] = np.concatenate(
            [self.values[layer], heads("attn_v", self.kv_heads)], axis=1
        )
        outs: list[F32] = []
        for head in range(self.heads):
            shared = head // (self.heads // self.kv_heads)
            scores = q[head] @ self.keys[layer][shared].T / np.float32(np.sqrt(self.head_dim))
            scores[np.arange(scores.shape[1])[None, :] > positions[:, None]] = -np.inf
            weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
            weights /= weights.sum(axis=-1, keepdims=True)
            outs.append(weights @ self.values[layer][shared])
        return self._linear(np.concatenate(outs, axis=-1), f"blk.{layer}.attn_output")

    def _feed_forward(self, layer: int, h: F32) -> F32:
        gate = self._linear(h, f"blk.{layer}.ffn_gate")
        up = self._linear(h, f"blk.{layer}.ffn_up")
        return self._linear(gate / (1 + np.exp(-gate)) * up, f"blk.{layer}.ffn_down")


def numpy_llama(file: GgufFile, config: LlamaConfig) -> NumpyLlama:
    """The decoder over a checkpoint's dequantised weights."""
    return NumpyLlama(
        {name: file.dequantize(name) for name in config.tensor_shapes()},
        layers=config.layers,
        heads=config.heads,
        kv_heads=config.kv_heads,
        head_dim=config.head_dim,
        theta=config.rope_theta,
        eps=config.norm_eps,
    )
