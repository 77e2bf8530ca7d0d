"""Selected attention and best blocks of every form, as text, with inputs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from poot.ir.dtypes import DTYPES


@dataclass(frozen=True, slots=True)
class Form:
    """One selected_attention eqn. `lists` is Hs; `spare` how many entries of a list may stay
    empty; `ends` are positions past which rows start, None for random ones."""

    batch: int = 2
    heads: int = 4
    kv_heads: int = 2
    rows: int = 1
    keys: int = 50
    width: int = 16
    value_width: int = 16
    ratio: int = 4
    listed: int = 3
    lists: int = 1
    always: str = "tail"
    dtype: str = "f32"
    paged: bool = False
    live: bool = False
    shared: int = 0
    sink: bool = False
    softcap: float | None = None
    lse: bool = False
    positions: tuple[int, ...] | None = None

    @property
    def buffers(self) -> int:
        """Operands and results."""
        more = (self.paged, self.live, self.shared > 0, self.sink, self.lse)
        return 6 + sum(more)

    def __str__(self) -> str:
        base = Form()
        changed = [
            f"{n}={getattr(self, n)}"
            for n in self.__slots__
            if getattr(self, n) != getattr(base, n)
        ]
        return " ".join(changed) or "plain"


def typed(dtype: str, shape: tuple[int, ...]) -> str:
    return f"{dtype}[{','.join(map(str, shape))}]"


def candidates(position: int, ratio: int, always: str) -> int:
    if always.startswith("window("):
        return max(position + 1 - int(always[7:-1]), 0) // ratio
    return (position + 1 if always in ("tail", "none") else position) // ratio


def draw_ids(
    rng: np.random.Generator,
    positions: np.ndarray,
    lists: int,
    listed: int,
    ratio: int,
    always: str,
) -> np.ndarray:
    """Unique candidates in ascending order, -1 and then anything behind them."""
    batch, rows = positions.shape
    ids = np.full((batch, lists, rows, listed), -1, np.int32)
    for b, h, r in np.ndindex(batch, lists, rows):
        count = candidates(int(positions[b, r]), ratio, always)
        many = min(count, int(rng.integers(0, listed + 1)) if rng.random() < 0.3 else listed)
        ids[b, h, r, :many] = np.sort(rng.permutation(count)[:many])
        if many + 1 < listed:  # what follows the first -1 is ignored
            ids[b, h, r, many + 1 :] = rng.integers(-1, max(count, 1), listed - many - 1)
    return ids


def form_text(form: Form, seed: int = 0) -> tuple[str, dict[str, np.ndarray]]:
    """(the graph's text, its feed)."""
    rng = np.random.default_rng(seed)
    lines: list[str] = []
    feed: dict[str, np.ndarray] = {}

    def add(name: str, dtype: str, array: np.ndarray, limits: str = "") -> None:
        lines.append(f'slot v{len(lines)}: {typed(dtype, array.shape)} "{name}"{limits}')
        feed[name] = array.astype(DTYPES[dtype].numpy)

    f = form
    pool = f.batch * f.keys + 7
    lead = (pool, f.kv_heads) if f.paged else (f.batch, f.kv_heads, f.keys)
    if f.positions is None:
        last = rng.integers(0, f.keys, (f.batch, 1))
        positions = np.clip(last - f.rows + 1 + np.arange(f.rows), 0, f.keys - 1)
    else:
        positions = np.array(f.positions).reshape(f.batch, f.rows)
    add("q", f.dtype, rng.normal(size=(f.batch, f.heads, f.rows, f.width)))
    add("k", f.dtype, rng.normal(size=(*lead, f.width - f.shared)))
    add("v", f.dtype, rng.normal(size=(*lead, f.value_width)))
    add("ids", "i32", draw_ids(rng, positions, f.lists, f.listed, f.ratio, f.always))
    add("positions", "i32", positions, f" range=(0, {f.keys})")
    if f.shared:
        add("k_shared", f.dtype, rng.normal(size=(f.batch, 1, f.keys, f.shared)))
    if f.paged:
        add("read", "i32", rng.integers(0, pool, (f.batch, f.keys)), f" range=(0, {pool})")
    if f.live:
        lengths = np.minimum(positions.max(1) + 1, f.keys)
        add("len", "i32", lengths, f" range=(1, {f.keys + 1})")
    if f.sink:
        add("sink", f.dtype, rng.normal(size=f.heads))
    attrs = f"operands=({', '.join(feed)}) ratio={f.ratio} scale=0.25"
    quoted = f'"{f.always}"' if "(" in f.always else f.always
    attrs += f" always={quoted}" if f.always != "tail" else ""
    attrs += f" softcap={f.softcap}" if f.softcap is not None else ""
    attrs += " lse=True" if f.lse else ""
    n = len(lines)
    outs = f"v{n}: {typed(f.dtype, (f.batch, f.heads, f.rows, f.value_width))}"
    outs += f", v{n + 1}: {typed('f32', (f.batch, f.heads, f.rows))}" if f.lse else ""
    operands = ", ".join(f"v{i}" for i in range(n))
    lines.append(f"{outs} = selected_attention({operands}) {attrs}")
    lines.append(f"out v{n}" + (f", v{n + 1}" if f.lse else ""))
    return "\n".join(lines), feed


ALONE: tuple[Form, ...] = (
    Form(1, 1, 1, 1, 1, 1, 1, 1, 1),
    Form(),
    Form(positions=(2, 49)),
    Form(positions=(3, 48)),
    Form(ratio=1, listed=9),
    Form(ratio=16, listed=2, keys=70),
    Form(ratio=128, listed=1, keys=300, positions=(260, 255)),
    Form(always="own"),
    Form(always="own", ratio=1, listed=5),
    Form(always="own", positions=(3, 4)),
    Form(always="window(9)", positions=(3, 48)),
    Form(always="window(16)", ratio=16, listed=2, keys=120),
    Form(always="window(2)", ratio=1, listed=5, live=True),
    Form(always="none", sink=True, positions=(2, 41)),
    Form(always="none", ratio=1, listed=7),
    Form(lists=2),
    Form(lists=4),
    Form(heads=6, kv_heads=1, lists=1, width=33, value_width=17),
    Form(1, 12, 1, 1, 90, 64, 72, listed=9),
    Form(paged=True),
    Form(live=True),
    Form(sink=True),
    Form(softcap=2.0),
    Form(lse=True),
    Form(width=24, shared=8),
    Form(width=21, shared=6),
    Form(listed=20, keys=200, positions=(199, 100)),
)
PREFILL: tuple[Form, ...] = (
    Form(rows=3),
    Form(rows=9, keys=64, listed=4, lists=2),
    Form(rows=20, heads=1, kv_heads=1, batch=1, keys=90),
    Form(rows=5, always="own", lists=4),
    Form(rows=8, paged=True, live=True, softcap=3.0, sink=True, lse=True),
    Form(rows=6, ratio=1, listed=7),
    Form(rows=7, ratio=16, listed=2, keys=130, width=33, value_width=20),
    Form(rows=4, width=24, shared=8, heads=4, kv_heads=1),
    Form(rows=6, always="window(11)", keys=90, listed=4),
    Form(rows=6, always="none", ratio=2, sink=True),
)
NARROW: tuple[Form, ...] = tuple(
    Form(rows=rows, dtype=dtype, paged=paged, live=live, sink=sink, lse=lse, lists=lists,
         value_width=width)
    for rows, dtype, paged, live, sink, lse, lists, width in (
        (1, "f16", True, True, False, True, 1, 16),
        (1, "bf16", False, False, True, False, 2, 33),
        (5, "f16", False, True, True, False, 2, 33),
        (5, "bf16", True, False, False, True, 1, 16),
    )
)  # fmt: skip


def best_text(
    scores: tuple[int, ...], k: int, ratio: int, always: str = "tail", dtype: str = "f32"
) -> str:
    """One block_topk over scores [B,Hs,Lq,N]."""
    batch, heads, rows, _ = scores
    kind = f" always={always}" if always != "tail" else ""
    ids = typed("i32", (batch, heads, rows, k))
    return f"""in v0: {typed(dtype, scores)}
               in v1: {typed("i32", (batch, rows))}
               v2: {ids} = block_topk(v0, v1) k={k} ratio={ratio}{kind}
               out v2"""


def best_inputs(
    scores: tuple[int, ...], ratio: int, dtype: str = "f32", seed: int = 0, *, ties: bool = False
) -> list[np.ndarray]:
    """Scores, with NaN and ties where asked, and positions over the whole range."""
    rng = np.random.default_rng(seed)
    values = rng.normal(size=scores)
    if ties:
        values = np.round(values)
        values[rng.random(scores) < 0.1] = np.nan
        values[rng.random(scores) < 0.05] = -np.inf
        values[rng.random(scores) < 0.05] = -0.0
    positions = rng.integers(0, scores[3] * ratio + ratio, (scores[0], scores[2]))
    return [values.astype(DTYPES[dtype].numpy), positions.astype(np.int32)]


def scores_text(
    batch: int,
    heads: int,
    rows: int,
    width: int,
    blocks: int,
    dtype: str = "bf16",
    weights: str = "",
) -> str:
    """One block_scores, of heads with weights of this dtype where there is one."""
    ins = [f"in v0: {dtype}[{batch},{heads},{rows},{width}]"]
    ins += [f"in v1: {dtype}[{batch},{blocks},{width}]"]
    ins += [f"in v2: {weights}[{batch},{heads},{rows}]"] if weights else []
    out = f"v{len(ins)}: f32[{batch},1,{rows},{blocks}]"
    names = ", ".join(f"v{n}" for n in range(len(ins)))
    return "\n".join([*ins, f"{out} = block_scores({names}) scale=0.125", f"out v{len(ins)}"])
