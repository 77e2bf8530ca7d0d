"""Attention eqns of every form, as text, with inputs: for what generators make of the fused op."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from poot.ir.dtypes import DTYPES


@dataclass(frozen=True, slots=True)
class Form:
    """One attention eqn. `mask` holds the axes (of B, Hq, Lq, Lk) on which the mask has extent;
    `fill` makes it a bool mask; with `begin` it says from which key on each row sees, and no more.
    With `codes` ("i8", "f8e4m3") keys and values are codes with a scale a row, which the step turns
    into `dtype`; `query` is what queries come in (else `dtype`)."""

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
    codes: str = ""
    query: str = ""
    begin: bool = False

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


class _Nothing:
    """Numbers for a text that nobody runs: of any shape, without memory."""

    def normal(self, size: tuple[int, ...] | int) -> np.ndarray:
        return np.broadcast_to(np.float64(1), size)

    random = normal

    def integers(self, low: int, high: int, size: tuple[int, ...] | int) -> np.ndarray:
        return np.broadcast_to(np.int64(low), size)


def form_only(form: Form) -> str:
    """The graph's text alone, for forms too large to run here."""
    return _form_text(form, _Nothing(), None)


def form_text(form: Form, seed: int = 0) -> tuple[str, dict[str, np.ndarray]]:
    """(the graph's text, its feed). Masks hold -inf or false in about a third of their places."""
    feed: dict[str, np.ndarray] = {}
    return _form_text(form, np.random.default_rng(seed), feed), feed


def _form_text(
    form: Form, rng: np.random.Generator | _Nothing, feed: dict[str, np.ndarray] | None
) -> str:
    lines: list[str] = []
    names: list[str] = []

    def add(name: str, dtype: str, array: np.ndarray, limits: str = "") -> None:
        lines.append(f'slot v{len(lines)}: {_typed(dtype, array.shape)} "{name}"{limits}')
        names.append(name)
        if feed is not None:
            feed[name] = array.astype(DTYPES[dtype].numpy)

    f = form
    pool = f.batch * f.keys + 7
    lead = (pool, f.kv_heads) if f.paged else (f.batch, f.kv_heads, f.keys)
    add("q", f.query or f.dtype, rng.normal(size=(f.batch, f.heads, f.rows, f.width)))
    for name, width in (("k", f.width - f.shared), ("v", f.value_width)):
        rows = rng.normal(size=(*lead, width))
        if not f.codes:
            add(name, f.dtype, rows)
            continue
        scales = rows[..., 0]
        if feed is not None:
            scales = np.maximum(np.abs(rows).max(-1), 1e-30) / _TOPS[f.codes]
            rows = rows / scales[..., None]
        add(name, f.codes, np.rint(rows) if f.codes == "i8" and feed is not None else rows)
        add(f"{name}_scale", "f32", scales)
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
    if f.begin:
        add("mask", "i32", rng.integers(-3, f.keys, f.batch))
    if f.sink:
        add("sink", f.dtype, rng.normal(size=f.heads))
    places = {name: f"v{n}" for n, name in enumerate(names)}
    if f.codes:
        _decoded(lines, f, places)
    if f.query and f.query != f.dtype:
        shape = (f.batch, f.heads, f.rows, f.width)
        places["q"] = _made(lines, f.dtype, shape, f"cast({places['q']}) dtype={f.dtype}")
    if f.begin:
        limit = _made(
            lines, "i32", (f.batch, 1, 1, 1),
            f"reshape({places['mask']}) shape=({f.batch}, 1, 1, 1)",
        )  # fmt: skip
        keys = (1, 1, 1, f.keys)
        count = _made(lines, "i32", keys, f"iota() axis=3 dtype=i32 shape={keys}")
        shape = (f.batch, 1, 1, f.keys)
        places["mask"] = _made(lines, "bool", shape, f"gt({count}, {limit})")
    attrs = f"operands=({', '.join(places)}) scale={f.scale}"
    for name, value in (
        ("softcap", f.softcap), ("mask_fill", -np.inf if f.begin else f.fill),
        ("causal", f.causal), ("window", f.window),
    ):  # fmt: skip
        attrs += f" {name}={value}" if value is not None else ""
    n = len(lines)
    outs = f"v{n}: {_typed(f.dtype, (f.batch, f.heads, f.rows, f.value_width))}"
    if f.lse:
        outs += f", v{n + 1}: {_typed('f32', (f.batch, f.heads, f.rows))}"
        attrs += " lse=True"
    operands = ", ".join(places.values())
    lines.append(f"{outs} = attention({operands}) {attrs}")
    lines.append(f"out v{n}" + (f", v{n + 1}" if f.lse else ""))
    return "\n".join(lines)


_TOPS = {"i8": 127.0, "f8e4m3": 448.0}


def _made(lines: list[str], dtype: str, shape: tuple[int, ...], text: str) -> str:
    lines.append(f"v{len(lines)}: {_typed(dtype, shape)} = {text}")
    return f"v{len(lines) - 1}"


def _decoded(lines: list[str], f: Form, places: dict[str, str]) -> None:
    """Codes times scales, in the places of keys and values; of a pool, gathered first."""
    read = places.pop("read", "")
    for name, width in (("k", f.width), ("v", f.value_width)):
        codes, scales = places[name], places.pop(f"{name}_scale")
        lead = (f.batch, f.keys, f.kv_heads) if f.paged else (f.batch, f.kv_heads, f.keys)
        if f.paged:
            codes = _made(lines, f.codes, (*lead, width), f"gather({codes}, {read}) axis=0")
            scales = _made(lines, "f32", lead, f"gather({scales}, {read}) axis=0")
        wide = _made(lines, "f32", (*lead, width), f"cast({codes}) dtype=f32")
        each = _made(lines, "f32", (*lead, 1), f"reshape({scales}) shape={(*lead, 1)}")
        rows = _made(lines, "f32", (*lead, width), f"mul({wide}, {each})")
        shape = (f.batch, f.kv_heads, f.keys, width)
        if f.paged:
            rows = _made(lines, "f32", shape, f"transpose({rows}) perm=(0, 2, 1, 3)")
        if f.dtype != "f32":
            rows = _made(lines, f.dtype, shape, f"cast({rows}) dtype={f.dtype}")
        places[name] = rows


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
