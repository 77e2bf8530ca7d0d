"""A layer's weights by name, as traced values, and what is done with one of them."""

from __future__ import annotations

from collections.abc import Mapping

from poot import ops
from poot.llm.models.parts.kinds import Norm
from poot.ops.array import Array

Weights = Mapping[str, Array]


def wide(w: Weights, name: str) -> Array:
    """A weight in f32, from whatever it is stored in."""
    return w[name].astype("f32")


def project(w: Weights, name: str, x: Array) -> Array:
    """x [..., in] times the matrix [out, in], plus `{name}_bias` where there is one: f32."""
    bias = f"{name}_bias"
    return ops.linear(x, wide(w, name), wide(w, bias) if bias in w else None)


def normed(w: Weights, name: str, x: Array, norm: Norm) -> Array:
    """x [..., width] normed, with the gain `name`."""
    if norm.is_layer:
        return ops.layer_norm(x, w[name], w[f"{name}_bias"], norm.eps)
    return ops.rms_norm(x, w[name], norm.eps, norm.plus_one)
