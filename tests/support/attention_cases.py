"""Attention of every dense form, as a model writes it with `ops`: what it is given, its graph, and
strategies that draw it."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from hypothesis import strategies as st

import poot
from poot import ops
from poot.ir.dtypes import DTYPES
from poot.ir.graph import Graph
from poot.ops import Array
from poot.oracle import run

# Widths that kernels get wrong, and pairs of a key's and a value's.
WIDTHS = (1, 8, 33, 40, 48, 63, 64, 72, 80, 88, 96, 112, 120, 128, 160, 192, 256, 512, 576)
PAIRS = ((32, 24), (192, 128), (576, 512), (512, 256), (64, 1), (24, 32))
# Heads of queries and of keys.
HEADS = ((1, 1), (2, 1), (3, 1), (4, 2), (6, 2), (9, 3), (5, 5), (7, 1), (8, 2))
MASKS = (
    "none", "bool", "bool of keys", "bool a head", "bool of rows", "added", "added a head",
    "-inf plane", "-1e9 plane", "least plane", "all -1e9", "alibi", "causal", "causal window",
)  # fmt: skip
# Masks whose numbers absorb a score: the chain's own f32 decides what is left of it.
ABSORBING = ("-1e9 plane", "all -1e9", "least plane")
LEAST = {"f32": -3.4028234663852886e38, "f16": -65504.0, "bf16": -3.3895313892515355e38}


@dataclass(frozen=True, slots=True)
class Form:
    """One attention: sizes, dtype, mask and score transform."""

    batch: int
    heads: int
    kv_heads: int
    rows: int
    keys: int
    dk: int
    dv: int
    mask: str = "none"
    dtype: str = "f32"
    softcap: float | None = None
    scale: float | None = None
    seed: int = 0

    @property
    def work(self) -> int:
        """Products of a query's or a weight's element."""
        return self.batch * self.heads * self.rows * self.keys * (self.dk + self.dv)

    @property
    def factor(self) -> float:
        return self.dk**-0.5 if self.scale is None else self.scale


def _mask(form: Form, rng: np.random.Generator) -> np.ndarray | None:
    """The mask operand, or None where there is none or the graph makes it."""
    b, h, r, t = form.batch, form.heads, form.rows, form.keys
    held = DTYPES[form.dtype].numpy
    shapes = {
        "bool": (r, t), "bool of keys": (b, 1, 1, t), "bool a head": (1, h, r, t),
        "bool of rows": (b, 1, r, 1), "added": (b, 1, r, t), "added a head": (1, h, 1, t),
        "-inf plane": (r, t), "-1e9 plane": (b, 1, r, t), "least plane": (1, 1, r, t),
    }  # fmt: skip
    if form.mask in ("none", "alibi", "causal", "causal window"):
        return None
    if form.mask == "all -1e9":
        return np.full((1, t), _hides(form.dtype), held)
    shape = shapes[form.mask]
    if form.mask.startswith("added"):
        return rng.standard_normal(shape).astype(held)
    hidden = rng.random(shape) < 0.4
    if form.mask.startswith("bool"):
        return ~hidden
    fill = {
        "-inf plane": -math.inf,
        "-1e9 plane": _hides(form.dtype),
        "least plane": LEAST[form.dtype],
    }
    return np.where(hidden, fill[form.mask], 0.0).astype(held)


def _hides(dtype: str) -> float:
    """The finite number that models hide with: -1e9, or what f16 holds of such a number."""
    return -3e4 if dtype == "f16" else -1e9


def arrays_of(form: Form) -> dict[str, np.ndarray]:
    """q, k and v unit-normal in the form's dtype, and its mask where it has one."""
    rng = np.random.default_rng(form.seed)
    held = DTYPES[form.dtype].numpy
    shapes = {
        "q": (form.batch, form.heads, form.rows, form.dk),
        "k": (form.batch, form.kv_heads, form.keys, form.dk),
        "v": (form.batch, form.kv_heads, form.keys, form.dv),
    }
    drawn = {name: rng.standard_normal(s).astype(np.float32) for name, s in shapes.items()}
    feed = {name: x.astype(held) for name, x in drawn.items()}
    mask = _mask(form, rng)
    return feed if mask is None else feed | {"mask": mask}


def _alibi(form: Form) -> np.ndarray:
    """The bias as the form's dtype holds it: it is an operand of attention, rounded before."""
    t, r = np.arange(form.keys), np.arange(form.rows)[:, None] + form.keys - form.rows
    distance = (t - r).astype(np.float32)
    bias = ops.alibi_slopes(form.heads)[None, :, None, None] * distance
    return bias.astype(DTYPES[form.dtype].numpy)


def graph_of(form: Form, known_mask: bool = False) -> Graph:
    """The form as a graph of primitives; each array is a slot by its name. With `known_mask` a bias
    that the graph would make is a constant, in the form's dtype."""
    feed = arrays_of(form)

    def attend(q: Array, k: Array, v: Array, mask: Array | None = None) -> object:
        options = {"scale": form.factor, "softcap": form.softcap}
        if form.mask.startswith("causal"):
            window = 3 if form.mask == "causal window" else None
            return ops.attention_prefill(q, k, v, window=window, **options)
        if form.mask == "alibi":
            slopes = ops.alibi_slopes(form.heads)
            made = ops.alibi_bias(slopes, form.rows, form.keys, dtype=form.dtype)
            return ops.attention_masked(
                q, k, v, mask=_alibi(form) if known_mask else made, **options
            )
        return ops.attention_masked(q, k, v, mask=mask, **options)

    if "mask" in feed:
        return poot.trace(attend, tuple(_slot(x) for x in feed.values()))
    return poot.trace(lambda q, k, v: attend(q, k, v), tuple(_slot(x) for x in feed.values()))


def _slot(x: np.ndarray) -> object:
    names = {d.numpy: name for name, d in DTYPES.items()}
    return poot.slot(x.shape, names[x.dtype])


def wanted(form: Form, graph: Graph, feed: dict[str, np.ndarray]) -> np.ndarray:
    """What is right, in the form's dtype: the unfused chain in f64; in f32 where the mask's numbers
    absorb scores. A 16-bit form's intermediates are f32 or wider: rounded once, at the end. Its
    mask is an operand, which f64 mode would leave unrounded where the graph makes it."""
    absorbs = form.mask in ABSORBING
    if absorbs and form.dtype != "f32":
        wide = {n: x if x.dtype == np.bool_ else x.astype(np.float32) for n, x in feed.items()}
        twin = graph_of(replace(form, dtype="f32"))
        (out,) = run(twin, wide).outputs
    else:
        known = graph_of(form, known_mask=True) if form.mask == "alibi" else graph
        (out,) = run(known, feed, f64=not absorbs).outputs
    with np.errstate(all="ignore"):
        return out.astype(np.float32).astype(DTYPES[form.dtype].numpy)


def forms(most_work: int, *, dtypes: tuple[str, ...] = ("f32",)) -> st.SearchStrategy[Form]:
    """Forms of at most so much work."""
    widths = st.one_of(st.sampled_from(WIDTHS).map(lambda d: (d, d)), st.sampled_from(PAIRS))

    @st.composite
    def draw(pick: st.DrawFn) -> Form:
        batch, (heads, kv_heads) = pick(st.integers(0, 3)), pick(st.sampled_from(HEADS))
        dk, dv = pick(widths)
        room = max(1, most_work // (max(batch, 1) * heads * (dk + dv)))
        keys = pick(st.integers(1, min(200, room)))
        rows = pick(st.integers(1, min(200, max(1, room // keys))))
        return Form(
            batch,
            heads,
            kv_heads,
            rows,
            keys,
            dk,
            dv,
            pick(st.sampled_from(MASKS)),
            pick(st.sampled_from(dtypes)),
            pick(st.sampled_from((None, None, 2.0, 30.0))),
            pick(st.sampled_from((None, None, 0.3))),
            pick(st.integers(0, 9)),
        )

    return draw()
