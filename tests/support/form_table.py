"""Attention forms by name, in any combination that may be written: a graph of public ops, what it
is fed, and the fields that its one fused eqn has to show.

A row names its forms; what it doesn't name is MHA, f32, dense keys, and every key visited.
"""

from __future__ import annotations

import itertools
import operator
from dataclasses import dataclass
from functools import reduce

import numpy as np

import poot
from poot import ops
from poot.ir.dtypes import DTYPES
from poot.ir.graph import Eqn, Graph, Slot
from poot.ops import Array
from poot.oracle import run
from poot.trace import Spec
from tests.support.fused import operands

# Forms of which a row has one, the first unless it names another.
ONE_OF = (
    ("MHA", "GQA", "MQA"),
    ("f32", "f16", "bf16"),
    ("capacity", "live", "position"),
)
# Forms that a row may add. Neither paged nor split are its keys where it is "dense".
ADDED = (
    "paged", "split key", "ALiBi", "added mask", "bool mask", "softcap", "causal", "window", "sink",
    "lse", "split-KV",
)  # fmt: skip
FORMS = (*itertools.chain.from_iterable(ONE_OF), "dense", *ADDED)
CAP, WINDOW, SCALE, SHARED = 4.0, 5, 0.3, 5


@dataclass(frozen=True, slots=True)
class Row:
    """One attention of the forms named."""

    names: frozenset[str]

    def __str__(self) -> str:
        return " + ".join(n for n in FORMS if n in self.names) or "plain"

    @property
    def all_names(self) -> frozenset[str]:
        """The names, and those of what it has for want of another."""
        given = [next((n for n in group if n in self.names), group[0]) for group in ONE_OF]
        is_dense = not {"paged", "split key"} & self.names
        return self.names | set(given) | ({"dense"} if is_dense else set())

    def one(self, group: int) -> str:
        return next(n for n in ONE_OF[group] if n in self.all_names)

    @property
    def is_split(self) -> bool:
        return "split-KV" in self.names

    @property
    def dtype(self) -> str:
        return self.one(1)

    @property
    def heads(self) -> tuple[int, int]:
        """Of queries and of keys."""
        of = {"MHA": (2, 2), "GQA": (4, 2), "MQA": (3, 1)} if self.is_split else {
            "MHA": (3, 3), "GQA": (6, 2), "MQA": (4, 1)
        }  # fmt: skip
        return of[self.one(0)]

    @property
    def batch(self) -> int:
        return 1 if self.is_split else 2

    @property
    def rows(self) -> int:
        return 1 if self.is_split else 3

    @property
    def keys(self) -> int:
        return 517 if self.is_split else 21

    @property
    def slots(self) -> int:
        """Of a pool."""
        return self.batch * self.keys + 9

    @property
    def width(self) -> int:
        return 17

    @property
    def value_width(self) -> int:
        return 9


def row(*names: str) -> Row:
    assert set(names) <= set(FORMS), names
    return Row(frozenset(n for n in names if n not in ("MHA", "f32", "capacity", "dense")))


# Pairs that no row has, with the reason.
APART = {
    "one count of heads": (ONE_OF[0],),
    "q, k and v have one dtype": (ONE_OF[1],),
    "a step has one length; a declared position is one": (ONE_OF[2],),
    "a dense key is neither in a pool nor in parts": (("dense", "paged"), ("dense", "split key")),
    "a window is causal already": (("causal", "window"),),
    "a position is the causal mask of a step": (("position", "causal"),),
}


def why_apart(a: str, b: str) -> str | None:
    """Why two forms are in no row together, or None."""
    for why, groups in APART.items():
        if any(a in group and b in group for group in groups):
            return why
    return None


def specs_of(r: Row) -> dict[str, Spec]:
    """What the row is given, by name."""
    heads, kv_heads = r.heads
    lead = (r.slots, kv_heads) if "paged" in r.names else (r.batch, kv_heads, r.keys)
    shared = SHARED if "split key" in r.names else 0
    specs = {
        "q": poot.slot((r.batch, heads, r.rows, r.width), r.dtype),
        "k": poot.slot((*lead, r.width - shared), r.dtype),
        "v": poot.slot((*lead, r.value_width), r.dtype),
    }
    if r.one(2) != "capacity":
        top = r.keys - r.rows + 1
        specs["pos"] = poot.slot((r.batch,), "i32", kind="pos", range=(0, top))
    if "paged" in r.names:
        specs["read"] = poot.slot((r.batch, r.keys), "i32", kind="slot_map", range=(0, r.slots))
    if shared:
        specs["shared"] = poot.slot((r.batch, 1, r.keys, shared), r.dtype)
    if "added mask" in r.names:
        specs["plane"] = poot.slot((r.batch, 1, r.rows, r.keys), r.dtype)
    if "bool mask" in r.names:
        specs["keep"] = poot.slot((1, heads, 1, r.keys), "bool")
    if "sink" in r.names:
        specs["sink"] = poot.slot((heads,), r.dtype)
    return specs


def graph_of(r: Row) -> Graph:
    """The row's graph; each array is a slot by its name."""
    return poot.trace(lambda at: attend(r, at, mask_of(r, at)), (specs_of(r),))


def attend(r: Row, at: dict[str, Array], mask: Array | None) -> object:
    """The row as a model writes it: one composition, its cache gathered, its masks in one."""
    k, v = at["k"], at["v"]
    if "paged" in r.names:
        k, v = (ops.take(x, at["read"], 0).transpose(0, 2, 1, 3) for x in (k, v))
    if "split key" in r.names:
        wide = ops.broadcast_to(at["shared"], (*k.shape[:3], SHARED))
        k = ops.concat([k, wide], 3)
    options: dict[str, object] = {
        "scale": SCALE,
        "softcap": CAP if "softcap" in r.names else None,
        "sink": at.get("sink"),
        "return_lse": "lse" in r.names,
        "mask": mask,
    }
    if r.one(2) == "live":
        return ops.attention_live(at["q"], k, v, at["pos"] + r.rows, **options)
    if is_prefill(r):
        window = WINDOW if "window" in r.names else None
        return ops.attention_prefill(at["q"], k, v, window=window, **options)
    return ops.attention_masked(at["q"], k, v, **options)


def is_prefill(r: Row) -> bool:
    """Whether its causal mask is that of `attention_prefill`."""
    return r.one(2) == "capacity" and bool({"causal", "window"} & r.names)


def mask_of(r: Row, at: dict[str, Array]) -> Array | None:
    """The mask operand: bool where all of it is, else a sum."""
    names, start = r.names, at.get("pos")
    keeps = [at["keep"]] if "keep" in at else []
    if (r.one(2) == "position" or {"causal", "window"} & names) and not is_prefill(r):
        window = WINDOW if "window" in names else None
        first = start if r.one(2) == "position" else None
        keeps.append(ops.causal_mask(r.rows, r.keys, first, window))
    added = [at["plane"]] if "plane" in at else []
    if "ALiBi" in names:
        slopes = ops.alibi_slopes(r.heads[0])
        added.append(ops.alibi_bias(slopes, r.rows, r.keys, start, r.dtype))
    if not added:
        return reduce(operator.and_, keeps) if keeps else None
    return reduce(operator.add, [*added, *(ops.additive_mask(x, r.dtype) for x in keeps)])


def feed_of(r: Row, seed: int = 0) -> dict[str, np.ndarray]:
    """An array for each slot. Lengths are all keys and few; every mask leaves the last two keys of
    the first five, and the last two of all."""
    rng = np.random.default_rng(seed)
    feed: dict[str, np.ndarray] = {}
    for i in graph_of(r).inputs:
        shape, name = i.var.type.shape, i.name.removeprefix("at.")
        if name == "pos":
            far = r.keys - r.rows
            near = far - 2 if "window" in r.names else 1
            feed[i.name] = np.asarray([far, near][: r.batch], np.int32)
        elif name == "read":
            words = rng.permutation(r.slots)[: r.batch * r.keys]
            feed[i.name] = words.reshape(shape).astype(np.int32)
        elif name in ("keep", "plane"):
            hidden = rng.random(shape) < 0.3
            hidden[..., [0, 1, -2, -1]] = False
            bias = np.where(hidden, -np.inf, rng.standard_normal(shape))
            feed[i.name] = ~hidden if name == "keep" else bias.astype(DTYPES[r.dtype].numpy)
        elif isinstance(i.storage, Slot):
            feed[i.name] = rng.standard_normal(shape).astype(DTYPES[r.dtype].numpy)
    return feed


def fields_of(r: Row) -> tuple[frozenset[str], dict[str, object]]:
    """The operands and the attributes of the row's one attention eqn."""
    names, at_position = r.names, r.one(2) == "position"
    named = {"q", "k", "v"}
    named |= {"k_shared"} if "split key" in names else set()
    named |= {"read"} if "paged" in names else set()
    named |= {"len"} if r.one(2) != "capacity" else set()
    named |= {"sink"} & names
    rest = at_position and (r.rows > 1 or "window" in names)
    named |= {"mask"} if rest or {"ALiBi", "added mask", "bool mask"} & names else set()
    attrs: dict[str, object] = {}
    if {"causal", "window"} & names and not at_position:
        attrs["causal"] = r.keys - r.rows
    if "window" in names and not at_position:
        attrs["window"] = WINDOW
    attrs |= {"softcap": CAP} if "softcap" in names else {}
    attrs |= {"lse": True} if "lse" in names else {}
    return frozenset(named), attrs


def check_fields(r: Row, eqn: Eqn) -> None:
    """Asserts that an attention eqn is the row's: its operands, numbers, heads and dtype."""
    named, attrs = fields_of(r)
    given = operands(eqn)
    assert set(given) == named, f"{r}: {sorted(given)}"
    shown = {n: eqn.attr(n) for n in ("causal", "window", "softcap", "lse")}
    assert {n: x for n, x in shown.items() if x is not None} == attrs, f"{r}: {shown}"
    at = dict(zip(given, eqn.ins, strict=True))
    assert at["k"].type.shape[1] == r.heads[1], f"{r}: {given}"
    assert {at[n].type.dtype for n in "qkv"} == {r.dtype}
    assert eqn.outs[0].type.dtype == r.dtype


def wanted(r: Row, feed: dict[str, np.ndarray]) -> tuple[np.ndarray, ...]:
    """What is right: the mask as the row makes it in its dtype, then the chain as it is written in
    f64, each output rounded once."""
    specs = specs_of(r)
    masks = poot.trace(lambda at: (at["q"], *_given(mask_of(r, at))), (specs,))
    mask = run(masks, feed).outputs[1:]
    if mask:
        specs["mask"] = poot.slot(mask[0].shape, masks.outputs[1].type.dtype)
    graph = poot.trace(lambda at: attend(r, at, at.get("mask")), (specs,))
    outs = run(graph, feed | ({"at.mask": mask[0]} if mask else {}), f64=True).outputs
    with np.errstate(all="ignore"):
        return tuple(
            x.astype(np.float32).astype(DTYPES[v.type.dtype].numpy)
            for v, x in zip(graph.outputs, outs, strict=True)
        )


def _given(mask: Array | None) -> tuple[Array, ...]:
    return () if mask is None else (mask,)
