"""A layer's weights by name, as traced values, and what is done with one of them."""

from __future__ import annotations

from collections.abc import Mapping

from poot import ops
from poot.llm.lora import Factors, Lora, chosen, delta
from poot.llm.models.parts.coded import Matrix, decoded
from poot.llm.models.parts.kinds import Norm
from poot.ops.array import Array

Weights = Mapping[str, Matrix[Array]]


def wide(w: Weights, name: str) -> Array:
    """A weight in f32, from whatever it is stored in."""
    return decoded(w[name])


def plain(w: Weights, name: str) -> Array | None:
    """A weight that is never in codes, None where there is none."""
    found = w.get(name)
    assert found is None or isinstance(found, Array)
    return found


def project(w: Weights, name: str, x: Array) -> Array:
    """x [n, in] times the matrix [out, in], plus `{name}_bias` and what each row's adapter adds
    where there are such: f32."""
    bias, a, b = f"{name}_bias", plain(w, f"{name}.a"), plain(w, f"{name}.b")
    out = ops.linear(x, wide(w, name), wide(w, bias) if bias in w else None)
    if a is None or b is None:
        return out
    apart = x.reshape(a.shape[0], -1, x.shape[-1])
    return out + delta(Factors(a, b), apart).reshape(*out.shape)


def adapted(w: Weights, lora: Lora[Array], adapter: Array) -> Weights:
    """A layer's weights with the factors of each row's adapter, i32 [rows], beside them as
    `{name}.a` and `{name}.b`. The rows of what is projected then are those of the adapters, each
    with its tokens."""
    made = dict(w)
    for name, factors in lora.items():
        rows = chosen(factors, adapter)
        made |= {f"{name}.a": rows.a, f"{name}.b": rows.b}
    return made


def normed(w: Weights, name: str, x: Array, norm: Norm) -> Array:
    """x [..., width] normed, with the gain `name`."""
    if norm.is_layer:
        return ops.layer_norm(x, plain(w, name), plain(w, f"{name}_bias"), norm.eps)
    gain = plain(w, name)
    assert gain is not None
    return ops.rms_norm(x, gain, norm.eps, norm.plus_one)
