"""Attention eqns of every form, as text, with inputs: for what generators make of the fused op."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from poot.ir.dtypes import DTYPES


@dataclass(frozen=True, slots=True)
class Form:
    """One attention eqn. `mask` holds the axes (of B, Hq, Lq, Lk) on which the mask has extent;
    `fill` makes it a bool mask. `pool` is how many slots a paged key has beyond the keys."""

    batch: int = 2
    heads: int = 4
    kv_heads: int = 2
    rows: int = 3
    keys: int = 50
    width: int = 16
    value_width: int = 16
    dtype: str = "f32"
    mask: str = ""
    fill: float | None = None
    softcap: float | None = None
    live: bool = False
    paged: bool = False
    shared: int = 0
    sink: bool = False
    causal: int | None = None
    window: int | None = None
    lse: bool = False
    scale: float = 0.25

    def __str__(self) -> str:
        base = Form()
        changed = [
            f"{n}={getattr(self, n)}"
            for n in self.__slots__
            if getattr(self, n) != getattr(base, n)
        ]
        return " ".join(changed) or "plain"


def _typed(dtype: str, shape: tuple[int, ...]) -> str:
    return f"{dtype}[{','.join(map(str, shape))}]"


def form_text(form: Form, seed: int = 0) -> tuple[str, dict[str, np.ndarray]]:
    """(the graph's text, its feed). Masks hold -inf or false in about a third of their places."""
    rng = np.random.default_rng(seed)
    lines: list[str] = []
    feed: dict[str, np.ndarray] = {}

    def add(name: str, dtype: str, array: np.ndarray, limits: str = "") -> None:
        lines.append(f'slot v{len(lines)}: {_typed(dtype, array.shape)} "{name}"{limits}')
        feed[name] = array.astype(DTYPES[dtype].numpy)

    f = form
    pool = f.batch * f.keys + 7
    lead = (pool, f.kv_heads) if f.paged else (f.batch, f.kv_heads, f.keys)
    add("q", f.dtype, rng.normal(size=(f.batch, f.heads, f.rows, f.width)))
    add("k", f.dtype, rng.normal(size=(*lead, f.width - f.shared)))
    add("v", f.dtype, rng.normal(size=(*lead, f.value_width)))
    if f.shared:
        add("k_shared", f.dtype, rng.normal(size=(f.batch, 1, f.keys, f.shared)))
    if f.paged:
        add("read", "i32", rng.integers(0, pool, (f.batch, f.keys)), f" range=(0, {pool})")
    if f.live:
        add("len", "i32", rng.integers(1, f.keys + 1, f.batch), f" range=(1, {f.keys + 1})")
    if f.mask:
        extents = zip("bhqk", (f.batch, f.heads, f.rows, f.keys), strict=True)
        shape = tuple(n if axis in f.mask else 1 for axis, n in extents)
        hidden = rng.random(shape) < 0.3
        plane = np.where(hidden, -np.inf, rng.normal(size=shape)) if f.fill is None else ~hidden
        add("mask", f.dtype if f.fill is None else "bool", plane)
    if f.sink:
        add("sink", f.dtype, rng.normal(size=f.heads))
    attrs = f"operands=({', '.join(feed)}) scale={f.scale}"
    for name, value in (
        ("softcap", f.softcap), ("mask_fill", f.fill), ("causal", f.causal), ("window", f.window),
    ):  # fmt: skip
        attrs += f" {name}={value}" if value is not None else ""
    n = len(lines)
    outs = f"v{n}: {_typed(f.dtype, (f.batch, f.heads, f.rows, f.value_width))}"
    if f.lse:
        outs += f", v{n + 1}: {_typed('f32', (f.batch, f.heads, f.rows))}"
        attrs += " lse=True"
    operands = ", ".join(f"v{i}" for i in range(n))
    lines.append(f"{outs} = attention({operands}) {attrs}")
    lines.append(f"out v{n}" + (f", v{n + 1}" if f.lse else ""))
    return "\n".join(lines), feed


ALONE: tuple[Form, ...] = (
    Form(1, 1, 1, 1, 1, 1, 1),
    Form(2, 4, 2, 3, 17, 33, 24),
    Form(1, 9, 3, 1, 77, 64, 64),
    Form(2, 4, 1, 5, 20, 8, 16),
    Form(1, 2, 1, 1, 20, 576, 512),
    Form(mask="k"),
    Form(mask="bqk", fill=float("-inf")),
    Form(mask="hqk", fill=-1e9),
    Form(mask="bhqk"),
    Form(softcap=5.0),
    Form(live=True),
    Form(paged=True),
    Form(width=24, shared=8),
    Form(width=24, shared=5),
    Form(sink=True),
    Form(causal=47),
    Form(rows=7, keys=5, causal=-2),
    Form(rows=7, keys=9, causal=2, window=3),
    Form(lse=True),
)
MIXED: tuple[Form, ...] = tuple(
    Form(
        rows=rows, keys=keys, width=24 if shared else 16, shared=shared, dtype=dtype, mask=mask,
        fill=fill, softcap=softcap, live=live, paged=paged, sink=sink, causal=causal, lse=lse,
        value_width=value_width,
    )
    for (rows, keys, shared, dtype, mask, fill, softcap, live, paged, sink, causal, lse,
         value_width) in (
        (3, 50, 0, "f32", "qk", None, 5.0, True, True, False, None, True, 16),
        (3, 50, 8, "f32", "hk", float("-inf"), None, True, False, True, None, True, 17),
        (5, 33, 0, "f32", "", None, 2.0, False, True, True, 28, True, 16),
        (3, 50, 0, "f16", "qk", None, 5.0, True, True, False, None, False, 63),
        (3, 50, 8, "f16", "", None, None, True, False, True, 47, True, 16),
        (3, 50, 0, "bf16", "bk", float("-inf"), 5.0, False, True, False, None, True, 33),
        (3, 50, 8, "bf16", "h", None, None, True, False, True, None, False, 16),
    )
)  # fmt: skip
DECODES: tuple[Form, ...] = (
    Form(1, 1, 1, 1, 300),
    Form(1, 1, 1, 1, 300, live=True, lse=True),
    Form(1, 1, 1, 1, 1024, 33, 17, live=True, paged=True, softcap=3.0, sink=True, mask="bhqk"),
    Form(1, 1, 1, 1, 600, mask="k", fill=float("-inf"), dtype="bf16"),
    Form(1, 1, 1, 1, 600, live=True, dtype="f16", lse=True),
    Form(1, 1, 1, 1, 300, 24, 16, shared=8, sink=True, lse=True),
)
