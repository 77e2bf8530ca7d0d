"""The layers that models are made of, as compositions of primitives.

Norms of f16 and bf16 are computed in f32 and rounded once, at the end; other functions keep their
operand's dtype throughout.
"""

from __future__ import annotations

import math

from poot.ops.array import Array, Operand, binary, emit, mean, normal_axis, reduce, take
from poot.ops.elementwise import erf, recip, tanh
from poot.ops.record import refuse


def softmax(x: Array, axis: int = -1) -> Array:
    """exp(x - max) / sum(exp(x - max)) along axis. All -inf gives NaN."""
    ex, total = _exp_sum(x, axis)[1:]
    return ex / total


def log_softmax(x: Array, axis: int = -1) -> Array:
    """x - max - log(sum(exp(x - max))) along axis."""
    shifted, _, total = _exp_sum(x, axis)
    return shifted - emit("log", total)


def _exp_sum(x: Array, axis: int) -> tuple[Array, Array, Array]:
    at = normal_axis("softmax", axis, x.ndim)
    shifted = x - reduce("max", x, at, True)
    ex = emit("exp", shifted)
    return shifted, ex, reduce("sum", ex, at, True)


def _wide(op: str, x: Array, *params: Array | None) -> tuple[Array, ...]:
    """x and the parameters in f32. A parameter is of x's dtype or f32, and [x.shape[-1]]."""
    out = [x.astype("f32")]
    for p in params:
        if p is None:
            continue
        if p.shape != x.shape[-1:] or p.dtype not in (x.dtype, "f32"):
            refuse(op, "parameters [width] of x's dtype or f32", x=x.type, parameter=p.type)
        out.append(p.astype("f32"))
    return tuple(out)


def rms_norm(x: Array, w: Array, eps: float, plus_one: bool = False) -> Array:
    """x * rsqrt(mean(x^2) + eps) * w over the last axis, w [width]; times 1 + w where plus_one."""
    wide, gain = _wide("rms_norm", x, w)
    power = mean(wide * wide, -1, True)
    normal = wide * emit("rsqrt", power + eps)
    return (normal * (gain + 1.0 if plus_one else gain)).astype(x.dtype)


def layer_norm(x: Array, w: Array | None, b: Array | None, eps: float) -> Array:
    """(x - mean) * rsqrt(mean((x - mean)^2) + eps) * w + b over the last axis; w and b [width] or
    None."""
    wide, *params = _wide("layer_norm", x, w, b)
    centred = wide - mean(wide, -1, True)
    normal = centred * emit("rsqrt", mean(centred * centred, -1, True) + eps)
    if w is not None:
        normal = normal * params[0]
    if b is not None:
        normal = normal + params[-1]
    return normal.astype(x.dtype)


def sigmoid(x: Array) -> Array:
    """1 / (1 + exp(-x))."""
    return recip(emit("exp", -x) + 1.0)


def silu(x: Array) -> Array:
    """x * sigmoid(x)."""
    return x * sigmoid(x)


def relu(x: Array) -> Array:
    """max(x, 0); NaN stays NaN."""
    return binary("max", x, 0.0)


def gelu(x: Array) -> Array:
    """x * (1 + erf(x / sqrt(2))) / 2."""
    return x * 0.5 * (erf(x * (1.0 / math.sqrt(2.0))) + 1.0)


def gelu_tanh(x: Array) -> Array:
    """x * (1 + tanh(sqrt(2/pi) * (x + 0.044715 x^3))) / 2: GELU as GPT-2 and Gemma approximate
    it."""
    inner = (x + x * x * x * 0.044715) * math.sqrt(2.0 / math.pi)
    return x * 0.5 * (tanh(inner) + 1.0)


def swiglu(gate: Array, up: Array) -> Array:
    """silu(gate) * up."""
    return silu(gate) * up


def geglu(gate: Array, up: Array) -> Array:
    """gelu_tanh(gate) * up."""
    return gelu_tanh(gate) * up


def linear(x: Array, w: Array, b: Array | None = None) -> Array:
    """x [..., in] times w [out, in] transposed, plus b [out] -> [..., out]. The sum is held in
    f32."""
    if w.ndim != 2 or x.ndim == 0 or x.shape[-1] != w.shape[1]:
        refuse("linear", "x [..., in] and w [out, in]", x=x.type, w=w.type)
    y = x @ w.T
    return y if b is None else y + b


def embedding(table: Operand, ids: Operand, mode: str | None = None) -> Array:
    """Rows of table [n, width] at ids (i32, any shape) -> [*ids.shape, width]. Ids are proved in
    0 .. n-1, as in `ops.take`, or clamp where mode="clamp"."""
    return take(table, ids, 0, mode)


def softcap(x: Array, cap: float) -> Array:
    """cap * tanh(x / cap): bounds x smoothly by cap > 0."""
    if not (cap > 0 and math.isfinite(cap)):
        refuse("softcap", "a finite cap above 0", cap=cap)
    return tanh(x / cap) * cap
