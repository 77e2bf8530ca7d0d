"""Random attention chains in every spelling that the rewrite is to see through."""

from __future__ import annotations

import math
from dataclasses import dataclass
from random import Random

import numpy as np

from poot.ir.build import Builder
from poot.ir.dtypes import DTYPES
from poot.ir.graph import Const, Graph, Slot, TensorType, Var

LOG2_E = 1.4426950408889634
ODD_WIDTHS = (1, 2, 3, 4, 5, 8, 24, 33)


@dataclass(frozen=True, slots=True)
class Form:
    """What a chain is: extents, dtype, and the name of each spelling."""

    batch: int = 1
    kv_heads: int = 1
    n_rep: int = 1
    rows: int = 2
    keys: int = 3
    width: int = 4
    value_width: int = 4
    dtype: str = "f32"
    repeat: str = "reshape"
    key_layout: str = "heads first"
    axes: int = 4
    scale: str = "times scores"
    softcap: float | None = None
    masks: tuple[str, ...] = ()
    softmax: str = "max"
    division: str = "div"
    keepdim: bool = True
    widen: bool = False

    @property
    def heads(self) -> int:
        return self.kv_heads * self.n_rep


def random_form(rng: Random) -> Form:
    """A form that fuses."""
    dtype = rng.choice(("f32", "f32", "f16", "bf16"))
    n_rep = rng.choice((1, 1, 2, 3, 5))
    kv_heads = rng.randint(1, 3)
    added = rng.choice(((), ("add",), ("add rows",), ("alibi",), ("add", "alibi")))
    hidden = rng.choice(((), ("select",), ("select not",), ("causal",), ("select", "causal")))
    return Form(
        batch=rng.randint(1, 3),
        kv_heads=kv_heads,
        n_rep=n_rep,
        rows=rng.choice((1, 2, 5)),
        keys=rng.choice((1, 3, 7)),
        width=rng.choice(ODD_WIDTHS),
        value_width=rng.choice(ODD_WIDTHS),
        dtype=dtype,
        repeat=rng.choice(("reshape", "gather", "stack", "expand" if kv_heads == 1 else "gather")),
        key_layout=rng.choice(("heads first", "rows first")),
        axes=rng.choice((3, 4, 4, 5)),
        scale=rng.choice(("times scores", "over scores", "q", "k", "both", "none")),
        softcap=rng.choice((None, None, 2.0)),
        masks=(*added, *hidden),
        softmax=rng.choice(("max", "no max", "exp2")),
        division=rng.choice(("div", "recip", "late")),
        keepdim=rng.random() < 0.5,
        widen=dtype != "f32" and rng.random() < 0.5,
    )


def chain(form: Form) -> Graph:
    """The graph of a form: q, k, v and masks in, the attended values out."""
    return _Writer(form).write()


class _Writer:
    def __init__(self, form: Form) -> None:
        self.form = form
        self.b = Builder()
        self.loc = 0

    def one(self, op: str, *ins: Var, **attrs: object) -> Var:
        self.loc += 1
        return self.b.one(op, *ins, loc=f"chain.py:{self.loc}", **attrs)

    def input(self, name: str, dtype: str, *shape: int) -> Var:
        return self.b.input(TensorType(dtype, shape), name, Slot())

    def number(self, like: Var, value: float) -> Var:
        return self.one("const", shape=(), dtype=like.type.dtype, value=value)

    def write(self) -> Graph:
        f = self.form
        q = self.input("q", f.dtype, f.batch, f.heads, f.rows, f.width)
        k, v = self.keys("k", f.width), self.keys("v", f.value_width)
        scale = 0.5  # a power of four's root, and exact in every dtype
        if f.scale in ("q", "both"):
            q = self.one("mul", q, self.number(q, scale if f.scale == "q" else 0.25))
        if f.scale in ("k", "both"):
            k = self.one("div", k, self.number(k, 1 / (scale if f.scale == "k" else 0.25)))
        q, k, v = (self.batched(x) for x in (q, k, v))
        if f.widen:
            q, k = (self.one("cast", x, dtype="f32") for x in (q, k))
        rank = len(k.type.shape)
        perm = (*range(rank - 2), rank - 1, rank - 2)
        s = self.one("matmul", q, self.one("transpose", k, perm=perm))
        if f.scale == "times scores":
            s = self.one("mul", s, self.number(s, scale))
        if f.scale == "over scores":
            s = self.one("div", s, self.number(s, 1 / scale))
        if f.softcap is not None:
            s = self.one("tanh", self.one("div", s, self.number(s, f.softcap)))
            s = self.one("mul", s, self.number(s, f.softcap))
        for mask in f.masks:
            s = self.masked(s, mask)
        out = self.weighed(s, v)
        shape = (f.batch, f.heads, f.rows, f.value_width)
        return self.b.graph((self.one("reshape", out, shape=shape),))

    def keys(self, name: str, width: int) -> Var:
        """[B, Hq, Lk, width], each head of the input n_rep times."""
        f = self.form
        if f.key_layout == "rows first":
            x = self.input(name, f.dtype, f.batch, f.keys, f.kv_heads, width)
            x = self.one("transpose", x, perm=(0, 2, 1, 3))
        else:
            x = self.input(name, f.dtype, f.batch, f.kv_heads, f.keys, width)
        full = (f.batch, f.heads, f.keys, width)
        if f.n_rep == 1:
            return x
        if f.repeat == "gather":
            index = np.repeat(np.arange(f.kv_heads, dtype=np.int32), f.n_rep)
            data = Const(index.tobytes())
            at = self.b.input(TensorType("i32", index.shape), f"{name} heads", data)
            return self.one("gather", x, at, axis=1)
        if f.repeat == "expand":
            return self.one("broadcast", x, shape=full)
        apart = self.one("reshape", x, shape=(f.batch, f.kv_heads, 1, f.keys, width))
        if f.repeat == "stack":
            wide = self.one("concat", *(apart,) * f.n_rep, axis=2)
        else:
            shape = (f.batch, f.kv_heads, f.n_rep, f.keys, width)
            wide = self.one("broadcast", apart, shape=shape)
        return self.one("reshape", wide, shape=full)

    def batched(self, x: Var) -> Var:
        """x [B, H, ...] with as many axes as the form has."""
        f = self.form
        rest = x.type.shape[2:]
        if f.axes == 3:
            return self.one("reshape", x, shape=(f.batch * f.heads, *rest))
        if f.axes == 5:
            return self.one("reshape", x, shape=(f.batch, f.kv_heads, f.n_rep, *rest))
        return x

    def fitted(self, mask: Var) -> Var:
        """A mask of [B|1, Hq|1, Lq|1, Lk] as it broadcasts to the scores."""
        f = self.form
        batch, heads, rows, keys = mask.type.shape
        if f.axes == 3:
            mask = self.one("broadcast", mask, shape=(f.batch, f.heads, rows, keys))
            return self.one("reshape", mask, shape=(f.batch * f.heads, rows, keys))
        if f.axes == 5:
            parts = (f.kv_heads, f.n_rep) if heads != 1 else (1, 1)
            return self.one("reshape", mask, shape=(batch, *parts, rows, keys))
        return mask

    def masked(self, s: Var, kind: str) -> Var:
        f = self.form
        dtype = s.type.dtype
        name = f"{kind} mask"
        if kind in ("add", "add rows", "alibi"):
            shape = {
                "add": (1, 1, f.rows, f.keys),
                "add rows": (f.batch, 1, 1, f.keys),
                "alibi": (1, f.heads, 1, f.keys),
            }[kind]
            return self.one("add", s, self.fitted(self.input(name, dtype, *shape)))
        if kind in ("select", "select not"):
            cond = self.fitted(self.input(name, "bool", f.batch, 1, f.rows, f.keys))
            fill = self.number(s, -math.inf)
            ins = (cond, s, fill) if kind == "select" else (cond, fill, s)
            return self.one("select", *ins)
        r = self.one("iota", shape=(f.rows, 1), axis=0, dtype="i32")
        t = self.one("iota", shape=(1, f.keys), axis=1, dtype="i32")
        last = self.one("add", r, self.number(r, f.keys - f.rows))
        cond = self.one("le", t, last)
        return self.one("select", cond, s, self.number(s, -math.inf))

    def row_of(self, x: Var, kind: str) -> Var:
        """The reduction of x over its last axis, as it broadcasts to x."""
        last = len(x.type.shape) - 1
        got = self.one("reduce", x, kind=kind, axis=(last,), keepdim=self.form.keepdim)
        return got if self.form.keepdim else self.one("reshape", got, shape=(*got.type.shape, 1))

    def weighed(self, s: Var, v: Var) -> Var:
        f = self.form
        if f.softmax == "exp2":
            s = self.one("mul", s, self.number(s, LOG2_E))
        x = s if f.softmax == "no max" else self.one("sub", s, self.row_of(s, "max"))
        if f.softmax == "exp2":
            x = self.one("mul", x, self.number(x, math.log(2.0)))
        ex = self.one("exp", x)
        total = self.row_of(ex, "sum")
        if f.division == "late":
            ex, total = (self.narrow(y, v) for y in (ex, total))
            return self.one("div", self.one("matmul", ex, v), total)
        if f.division == "recip":
            p = self.one("mul", ex, self.one("recip", total))
        else:
            p = self.one("div", ex, total)
        return self.one("matmul", self.narrow(p, v), v)

    def narrow(self, x: Var, v: Var) -> Var:
        same = x.type.dtype == v.type.dtype
        return x if same else self.one("cast", x, dtype=v.type.dtype)


def chain_inputs(graph: Graph, seed: int, hide: float = -math.inf) -> dict[str, object]:
    """Normal q, k and v; additive masks of small biases and `hide`; bools mostly true. The first
    key of every row stays visible in each of them."""
    rng = np.random.default_rng(seed)
    feed: dict[str, object] = {}
    for i in graph.inputs:
        if isinstance(i.storage, Const):
            continue
        type = i.var.type
        if type.dtype == "bool":
            seen = rng.random(type.shape) < 0.7
            seen[..., 0] = True
            feed[i.name] = seen
            continue
        x = rng.standard_normal(type.shape)
        if i.name.endswith("mask"):
            x = np.where(rng.random(type.shape) < 0.3, hide, x)
            x[..., 0] = 0.0
        feed[i.name] = np.asarray(x, np.float32).astype(DTYPES[type.dtype].numpy)
    return feed
