"""Latent decodes: one key head whose values are the first channels of its keys, in the ways that a
step may read them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from poot.ir.dtypes import DTYPES
from poot.ir.text import parse
from poot.limits import DeviceLimits, profile
from poot.planner.request import Request
from tests.support.launch import check_step, request_of

H200 = profile("h200")


@dataclass(frozen=True, slots=True)
class Form:
    """One attention eqn. `kind` is where rows lie: "joined" (values are a slice of the keys),
    "gathered" (the same, of rows that a map finds), "split" (the last `shared` channels of a key
    apart) or "paged" (the same, in pools)."""

    kind: str = "joined"
    batch: int = 1
    heads: int = 3
    keys: int = 150
    width: int = 192
    value_width: int = 128
    dtype: str = "bf16"
    attrs: str = ""
    lengths: tuple[int, ...] = ()
    mask: str = ""
    sink: bool = False
    lse: bool = False
    is_made: bool = False
    poison: bool = False


def latent_text(form: Form, seed: int = 0) -> tuple[str, list[np.ndarray]]:
    """(the graph's text, its feed). Of pools and live lengths, what no row sees is NaN where
    `poison`."""
    f, rng = form, np.random.default_rng(seed)
    lines: list[str] = []
    feed: list[np.ndarray] = []
    names: dict[str, str] = {}

    def add(name: str, array: np.ndarray, dtype: str = "", limits: str = "") -> str:
        dtype = dtype or f.dtype
        var = f"v{len(lines)}"
        lines.append(f'slot {var}: {dtype}[{",".join(map(str, array.shape))}] "{name}"{limits}')
        feed.append(array.astype(DTYPES[dtype].numpy))
        return var

    def make(type: str, text: str) -> str:
        var = f"v{len(lines)}"
        lines.append(f"{var}: {f.dtype}[{type}] = {text}")
        return var

    b, keys, w, dv, spare = f.batch, f.keys, f.width, f.value_width, 7
    pool = b * keys + spare
    read = rng.permutation(pool)[: b * keys].reshape(b, keys)
    is_pooled = f.kind in ("gathered", "paged")
    seen = np.zeros(pool if is_pooled else b * keys, bool)
    for row, length in enumerate(f.lengths or (keys,) * b):
        seen[read[row, :length] if is_pooled else slice(row * keys, row * keys + length)] = True
    rows = rng.normal(size=(len(seen), w))
    if f.poison:
        rows[~seen] = np.nan
    lead = f"{b},1,{keys}"
    shape = (pool, 1) if is_pooled else (b, 1, keys)
    names["q"] = add("q", rng.normal(size=(b, f.heads, 1, w)))
    if f.kind in ("joined", "gathered"):
        held = add("rows", rows.reshape(*shape, w))
        index = add("map", read, "i32", f" range=(0, {pool})") if is_pooled else ""
        rest = _more(add, f, rng)
        if index:
            held = make(f"{b},{keys},1,{w}", f"gather({held}, {index}) axis=0")
            held = make(f"{lead},{w}", f"reshape({held}) shape=({b}, 1, {keys}, {w})")
        names["k"] = held
        whole = f"{b}, 1, {keys}"
        cut = f"start=(0, 0, 0, 0) step=(1, 1, 1, 1) stop=({whole}, {dv})"
        names["v"] = make(f"{lead},{dv}", f"slice({held}) {cut}")
    else:
        own = add("own", rows[:, :dv].reshape(*shape, dv))
        apart = add("apart", rows[:, dv:].reshape(*shape, w - dv))
        names |= {"k": own, "v": own, "k_shared": apart}
        if is_pooled:
            names["read"] = add("map", read, "i32", f" range=(0, {pool})")
        rest = _more(add, f, rng)
        if is_pooled:
            found = make(f"{b},{keys},1,{w - dv}", f"gather({apart}, {names['read']}) axis=0")
            names["k_shared"] = make(
                f"{lead},{w - dv}", f"reshape({found}) shape=({b}, 1, {keys}, {w - dv})"
            )
    names |= rest
    if f.is_made:
        names["q"] = make(f"{b},{f.heads},1,{w}", f"neg({names['q']})")
    outs = f"v{len(lines)}: {f.dtype}[{b},{f.heads},1,{dv}]"
    attrs = f"operands=({', '.join(names)}) scale=0.09 {f.attrs}"
    last = f"out v{len(lines)}"
    if f.lse:
        outs += f", v{len(lines) + 1}: f32[{b},{f.heads},1]"
        last += f", v{len(lines) + 1}"
        attrs += " lse=True"
    lines.append(f"{outs} = attention({', '.join(names.values())}) {attrs}")
    return "\n".join([*lines, last]), feed


def _more(add, f: Form, rng: np.random.Generator) -> dict[str, str]:
    """The operands that any form may have."""
    out: dict[str, str] = {}
    if f.lengths:
        length = np.array(f.lengths)
        out["len"] = add("len", length, "i32", f" range=(0, {f.keys + 1})")
    if f.mask:
        extents = zip("bhqk", (f.batch, f.heads, 1, f.keys), strict=True)
        shape = tuple(n if axis in f.mask else 1 for axis, n in extents)
        plane = np.where(rng.random(shape) < 0.3, -np.inf, rng.normal(size=shape))
        out["mask"] = add("mask", plane)
    if f.sink:
        out["sink"] = add("sink", rng.normal(size=f.heads))
    return out


def request_for(form: Form, limits: DeviceLimits = H200) -> Request:
    return request_of(parse(latent_text(form)[0]), "attention", limits=limits)


def check(form: Form, limits: DeviceLimits = H200, seed: int = 0) -> Request:
    """Simulates the form's kernels, and asserts the oracle's result."""
    text, feed = latent_text(form, seed)
    within = {"f16": 4e-3, "bf16": 3e-2}[form.dtype]
    return check_step(parse(text), "attention", limits=limits, ins=feed, within=within)
