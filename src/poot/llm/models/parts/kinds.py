"""What a decoder is made of, as data: a family's reader fills it in, and the parts carry it out.

Widths count elements. `rotary` is an index into the decoder's rotaries, None for no rotation.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from poot.ops.rope import FactorScaling, Scaling, rope_tables


@dataclass(frozen=True, slots=True)
class Norm:
    """RMSNorm, its gain 1 + w where `plus_one`; or LayerNorm where `is_layer`, with a bias where
    `is_biased` too."""

    eps: float
    plus_one: bool = False
    is_layer: bool = False
    is_biased: bool = True


@dataclass(frozen=True, slots=True)
class Rotary:
    """Turns the first `dim` of each head. Where `long` is given it takes the place of `scaling`
    in a cache of more than `original` positions: one choice a program, so that all keys of a cache
    are turned alike."""

    dim: int
    theta: float
    scaling: Scaling | None = None
    long: FactorScaling | None = None
    original: int = 0

    def tables(self, positions: int, capacity: int) -> tuple[np.ndarray, np.ndarray]:
        """(cos, sin) f32 [positions, dim / 2], for a cache of `capacity`."""
        is_long = self.long is not None and capacity > self.original
        return rope_tables(positions, self.theta, self.dim, self.long if is_long else self.scaling)


@dataclass(frozen=True, slots=True)
class Heads:
    """Attention with keys and values of their own: query head h reads key head h // (heads /
    kv_heads). `fused`: "" for three matrices; "rows", one whose outputs are q, k, v; "heads", one
    whose outputs are q, k, v of each head. `clip` bounds what the projections make, `qk_norm` is
    taken over each head before rotation. `slopes`: ALiBi's, one a head, or none."""

    heads: int
    kv_heads: int
    head_dim: int
    scale: float
    rotary: int | None = None
    window: int | None = None
    softcap: float | None = None
    is_sunk: bool = False
    is_biased: bool = False
    is_out_biased: bool = False
    slopes: tuple[float, ...] = ()
    clip: float | None = None
    qk_norm: Norm | None = None
    fused: str = ""


@dataclass(frozen=True, slots=True)
class Latent:
    """Multi-head latent attention: keys and values are made from a latent row of `kv_rank`, and
    each key ends in `rope` elements that all heads share. The cache holds the two side by side."""

    heads: int
    q_rank: int | None
    kv_rank: int
    nope: int
    rope: int
    value: int
    scale: float
    norm: Norm
    rotary: int
    is_interleaved: bool = True
    is_biased: bool = False


@dataclass(frozen=True, slots=True)
class Dense:
    """A feed-forward of one hidden layer. `act` is a name of `poot.llm.models.parts.feed.ACTS`.
    Gated: act(gate) * up. `is_fused`: gate and up are one matrix's rows."""

    width: int
    act: str
    is_gated: bool = True
    is_fused: bool = False
    is_biased: bool = False


@dataclass(frozen=True, slots=True)
class Router:
    """How each row chooses `used` experts: by the largest softmax, or sigmoid plus a learned
    correction where `is_sigmoid`. With `groups` above 1 only experts of the best `groups_used` may
    be chosen: a group counts as its best expert, or with a sigmoid as the sum of its two best.
    Weights are divided by their sum where `is_normal`, then multiplied by `scale`."""

    used: int
    is_normal: bool = True
    scale: float = 1.0
    is_sigmoid: bool = False
    groups: int = 1
    groups_used: int = 1
    is_biased: bool = False


@dataclass(frozen=True, slots=True)
class Experts:
    """`count` feed-forwards of `width`, some of which each row uses, and one of `shared` that all
    rows use (0: none). `clamped`: gate and up of an expert alternate in one stored matrix [in,
    out], with biases, and are clamped (alpha, limit)."""

    count: int
    width: int
    router: Router
    shared: int = 0
    act: str = "silu"
    clamped: tuple[float, float] | None = None


@dataclass(frozen=True, slots=True)
class Coding:
    """How a checkpoint stores matrices in codes, by a method of `poot.llm.models.parts.coded`.
    `block`: the rows and columns that share a scale. `zero` is added to the zeros stored."""

    method: str
    block: tuple[int, int] = (1, 1)
    zero: int = 0


@dataclass(frozen=True, slots=True)
class Layer:
    """Attention and feed-forward, each after a norm and added to what came in; `has_post_norms`:
    each result is normed before it is added."""

    attention: Heads | Latent
    feed: Dense | Experts
    norm: Norm
    has_post_norms: bool = False


@dataclass(frozen=True, slots=True)
class Decoder:
    """A model: embedding, layers, norm, logits. `names` gives a weight's place in the checkpoint
    (see `poot.llm.models.parts.places`). `ignored` are name endings or beginnings of tensors that
    stand in checkpoints of the family and change no logit. `coding`: of matrices of layers that the
    checkpoint has in codes."""

    family: str
    width: int
    vocab: int
    context: int
    layers: tuple[Layer, ...]
    norm: Norm
    rotaries: tuple[Rotary, ...]
    names: dict[str, str] = field(hash=False)
    is_tied: bool = False
    embed_scale: float | None = None
    embed_norm: Norm | None = None
    softcap: float | None = None
    ignored: tuple[str, ...] = ()
    coding: Coding | None = None
