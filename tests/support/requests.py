"""The fixed list of steps that every emitter and assembler is tried on: each schedule with each
dtype and odd shapes, as bodies in text."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from poot.limits import DeviceLimits
from poot.planner.request import Request, Schedule
from tests.support import attention_forms
from tests.support.latent import Form as Latent
from tests.support.latent import latent_text
from tests.support.launch import request_of
from tests.support.products import BODIES, matmul_text
from tests.support.selected_forms import (
    ALONE,
    NARROW,
    PREFILL,
    best_inputs,
    best_text,
    form_text,
    scores_text,
)

Updates = tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Case:
    """A step by name: its body, how it is anchored, what it updates, its schedule where it is not
    the chosen one, how close to the oracle it comes on unit-normal inputs, and its inputs where
    they are not just any."""

    name: str
    body: str
    anchor: str
    updates: Updates = ()
    schedule: Schedule | None = None
    within: float = 2e-5
    feed: Callable[[], list[np.ndarray]] | None = None

    def request(self, limits: DeviceLimits) -> Request:
        return request_of(self.body, self.anchor, self.updates, limits, self.schedule)


WITHIN = {"f32": 2e-5, "f16": 4e-3, "bf16": 3e-2}
FLOATS = tuple(WITHIN)


def _schedule(name: str, **params: int) -> Schedule:
    return Schedule(name, tuple(sorted(params.items())))


def _elementwise() -> list[Case]:
    cases: list[Case] = []
    for dtype in FLOATS:
        body = f"""in v0: {dtype}[3,33]
                   in v1: {dtype}[33]
                   v2: {dtype}[3,33] = mul(v0, v1)
                   v3: {dtype}[3,33] = exp(v2)
                   v4: {dtype}[33,3] = transpose(v3) perm=(1, 0)
                   out v4"""
        cases.append(Case(f"elementwise-{dtype}", body, "none", within=WITHIN[dtype] * 8))
        for size in (33, 63, 64):
            update = f"""in v0: {dtype}[2,9,{size}]
                         in v1: {dtype}[2,3,{size}]
                         in v2: i32[2]
                         v3: {dtype}[2,3,{size}] = neg(v1)
                         v4: {dtype}[2,9,{size}] = dynamic_update_slice(v0, v3, v2) axis=1
                         out v4"""
            cases.append(Case(f"slice-update-{dtype}-{size}", update, "none", ((0, 0),)))
            rows = f"""in v0: {dtype}[9,{size}]
                       in v1: {dtype}[4,{size}]
                       in v2: i32[4]
                       v3: {dtype}[9,{size}] = scatter_update(v0, v1, v2)
                       out v3"""
            cases.append(Case(f"row-update-{dtype}-{size}", rows, "none", ((0, 0),)))
    for dtype in ("i8", "u8", "f8e4m3", "i32", "u32", "bool"):
        body = f"""in v0: {dtype}[5,7]
                   v1: f32[5,7] = cast(v0) dtype=f32
                   v2: {dtype}[7,5] = transpose(v0) perm=(1, 0)
                   out v1, v2"""
        cases.append(Case(f"cast-{dtype}", body, "none"))
    trig = """in v0: f32[70]
              v1: f32[70] = sin(v0)
              v2: f32[70] = cos(v0)
              v3: f32[70] = tanh(v0)
              v4: f32[70] = erf(v0)
              v5: f32[70] = abs(v0)
              v6: f32[70] = log(v5)
              v7: f32[70] = rem(v1, v0)
              out v1, v2, v3, v4, v6, v7"""
    return [*cases, Case("functions", trig, "none")]


def _reduce() -> list[Case]:
    cases: list[Case] = []
    for dtype in FLOATS:
        body = f"""in v0: {dtype}[2,3,33]
                   v1: {dtype}[2,3,1] = reduce(v0) axis=(2,) keepdim=True kind=max
                   v2: {dtype}[2,3,33] = sub(v0, v1)
                   v3: {dtype}[2,3,33] = exp(v2)
                   v4: {dtype}[2,3,1] = reduce(v3) axis=(2,) keepdim=True kind=sum
                   v5: {dtype}[2,3,33] = div(v3, v4)
                   out v5"""
        cases.append(Case(f"softmax-{dtype}", body, "reduce", within=WITHIN[dtype]))
    for kind, dtype in (("sum", "f32"), ("min", "i32"), ("max", "u32")):
        body = f"""in v0: {dtype}[5,7,3]
                   v1: {dtype}[5,3] = reduce(v0) axis=(1,) keepdim=False kind={kind}
                   out v1"""
        cases.append(Case(f"reduce-{kind}-{dtype}", body, "reduce"))
    long = """in v0: f32[2,10001]
              v1: f32[2] = reduce(v0) axis=(1,) keepdim=False kind=sum
              out v1"""
    return [*cases, Case("reduce-long", long, "reduce", within=1e-3)]


def _rank() -> list[Case]:
    cases: list[Case] = []
    for dtype in (*FLOATS, "i32", "bool"):
        body = f"""in v0: {dtype}[3,77]
                   v1: i32[3] = argmax(v0) axis=1
                   out v1"""
        cases.append(Case(f"argmax-{dtype}", body, "none"))
        body = f"""in v0: {dtype}[3,77]
                   v1: {dtype}[3,5], v2: i32[3,5] = topk(v0) k=5
                   out v1, v2"""
        cases.append(Case(f"topk-{dtype}", body, "none"))
        body = f"""in v0: {dtype}[3,70]
                   v1: {dtype}[3,20], v2: i32[3,20] = topk(v0) k=20
                   out v1, v2"""
        cases.append(Case(f"ranked-topk-{dtype}", body, "none"))
    return cases


GEMV_SHARED = _schedule("gemv", adjacent=1, cols=2, lanes=8, rows=2, threads=32, unroll=4)
FRAGMENTS = _schedule("matrix", section=1, stages=3, tile_m=32, tile_n=64, warps_m=1, warps_n=4)
GEMM = _schedule("gemm", adjacent=1, lane_m=2, lane_n=2, tile_k=8, tile_m=16, tile_n=16)


def _products() -> list[Case]:
    cases: list[Case] = []
    for dtype in FLOATS:
        for is_linear in (False, True):
            body = matmul_text(5, 33, 7, is_linear, dtype)
            name = f"{'linear' if is_linear else 'matmul'}-{dtype}"
            for kind, schedule in (("", None), ("-shared", GEMV_SHARED), ("-tiled", GEMM)):
                case = Case(name + kind, body, "matmul", (), schedule, WITHIN[dtype])
                cases.append(case)
        few = matmul_text(3, 72, 19, True, dtype)
        cases.append(Case(f"few-rows-{dtype}", few, "matmul", within=WITHIN[dtype]))
        many = matmul_text(20, 72, 70, dtype != "f16", dtype)
        cases.append(Case(f"many-rows-{dtype}", many, "matmul", within=WITHIN[dtype]))
    for name, (body, updates) in BODIES.items():
        cases.append(Case(f"matmul-{name}", body, "matmul", updates, within=1e-4))
        cases.append(Case(f"tiled-{name}", body, "matmul", updates, GEMM, 1e-4))
    return cases


def attention_text(
    dtype: str = "f32",
    heads: tuple[int, int] = (4, 2),
    rows: int = 3,
    keys: int = 37,
    widths: tuple[int, int] = (16, 24),
    extra: tuple[tuple[str, str], ...] = (),
    **attrs: object,
) -> str:
    """One attention over inputs q, k, v and `extra` (name, type) ones; k_shared takes its width
    off k, read makes pools of k and v."""
    names = dict(extra)
    width = widths[0] - (
        int(names["k_shared"].split(",")[-1].rstrip("]")) if "k_shared" in names else 0
    )
    lead = f"{50},{heads[1]}" if "read" in names else f"2,{heads[1]},{keys}"
    types = {
        "q": f"{dtype}[2,{heads[0]},{rows},{widths[0]}]",
        "k": f"{dtype}[{lead},{width}]",
        "v": f"{dtype}[{lead},{widths[1]}]",
        **names,
    }
    given = {"scale": 0.25, "softcap": None, "mask_fill": None, "causal": None, "window": None}
    given |= {"lse": False, "operands": "(" + ", ".join(types) + ")"} | attrs
    lines = [f"in v{n}: {t}" for n, t in enumerate(types.values())]
    out = f"{dtype}[2,{heads[0]},{rows},{widths[1]}]"
    at = len(types)
    results = [f"v{at}: {out}"] + ([f"v{at + 1}: f32[2,{heads[0]},{rows}]"] if given["lse"] else [])
    ins = ", ".join(f"v{n}" for n in range(at))
    words = " ".join(f"{k}={v}" for k, v in sorted(given.items()))
    lines.append(f"{', '.join(results)} = attention({ins}) {words}")
    lines.append("out " + ", ".join(r.split(":")[0] for r in results))
    return "\n".join(lines)


def _attention() -> list[Case]:
    forms: dict[str, str] = {
        "decode": attention_text(rows=1),
        "decode_long": attention_text(rows=1, keys=300),
        "mqa": attention_text(heads=(3, 1)),
        "wide": attention_text(widths=(33, 65), keys=5),
        "additive": attention_text(extra=(("mask", "f32[2,1,3,37]"),)),
        "alibi": attention_text(extra=(("mask", "f32[1,4,1,37]"),)),
        "filled": attention_text(extra=(("mask", "bool[1,1,3,37]"),), mask_fill="-inf"),
        "finite": attention_text(extra=(("mask", "bool[2,1,1,37]"),), mask_fill="-30000.0"),
        "softcap": attention_text(softcap=2.0),
        "shared": attention_text(extra=(("k_shared", "f32[2,1,37,6]"),)),
        "shared-split": attention_text(
            rows=1, keys=300, extra=(("k_shared", "f32[2,1,300,6]"), ("len", "i32[2]"))
        ),
        "shared-paged": attention_text(
            "bf16", (10, 1), extra=(("k_shared", "bf16[2,1,37,5]"), ("read", "i32[2,37]"))
        ),
        "live": attention_text(extra=(("len", "i32[2]"),)),
        "paged": attention_text(extra=(("read", "i32[2,37]"),)),
        "sink": attention_text(extra=(("sink", "f32[4]"),)),
        "lse": attention_text(lse=True),
        "grouped": attention_text("bf16", heads=(8, 2), rows=1, keys=100, widths=(64, 64)),
        "tiled": attention_text("bf16", heads=(4, 2), rows=70, keys=150, widths=(64, 64)),
        "subgroup-tiles": attention_text("bf16", heads=(4, 2), rows=40, keys=70, widths=(48, 32)),
        "grouped-lanes": attention_text(heads=(8, 2), rows=1, keys=100, widths=(64, 64)),
        "causal": attention_text(causal=34),
        "window": attention_text(causal=34, window=5),
    }
    cases = [
        Case(f"attention-{n}", x, "attention", within=WITHIN["bf16" if "bf16" in x else "f32"])
        for n, x in forms.items()
    ]
    cases += _fed_decodes()
    latent = Latent("paged", batch=2, lengths=(150, 60))
    cases.append(
        Case("attention-latent", latent_text(latent)[0], "attention", within=WITHIN["bf16"],
             feed=lambda: latent_text(latent)[1])
    )  # fmt: skip
    for dtype in FLOATS:
        body = attention_text(dtype, widths=(33, 63))
        cases.append(Case(f"attention-{dtype}", body, "attention", within=WITHIN[dtype]))
    return cases


def _fed_decodes() -> list[Case]:
    """Decodes over codes of 8 bits, and of keys that begin where their row's limit says."""
    plain = attention_forms.Form(2, 4, 2, 1, 90, 64, 64, live=True)
    forms = {
        "int8": replace(plain, codes="i8", query="bf16"),
        "fp8": replace(plain, codes="f8e4m3"),
        "begins": replace(plain, begin=True),
    }
    return [
        Case(f"attention-{name}", attention_forms.form_text(form)[0], "attention",
             within=WITHIN["f32"],
             feed=lambda form=form: list(attention_forms.form_text(form)[1].values()))
        for name, form in forms.items()
    ]  # fmt: skip


def _selected() -> list[Case]:
    """Forms of selected attention that bind eight buffers at the most, and the best blocks."""
    cases: list[Case] = []
    forms = [f for f in (*ALONE[1::3], *PREFILL[1::2], *NARROW) if f.buffers <= 8]
    for n, form in enumerate(forms):

        def feed(form=form) -> list[np.ndarray]:
            return list(form_text(form)[1].values())

        body = form_text(form)[0]
        name = f"selected-{n}-{form.dtype}"
        cases.append(Case(name, body, "attention", within=WITHIN[form.dtype], feed=feed))
    for shape, k, ratio, dtype in (
        ((2, 2, 3, 33), 5, 4, "f32"),
        ((1, 1, 2, 300), 64, 1, "bf16"),
        ((1, 2, 1, 9000), 70, 4, "f16"),
        ((1, 1, 1, 32772), 9, 4, "bf16"),  # a row that registers do not hold
    ):

        def drawn(shape=shape, ratio=ratio, dtype=dtype) -> list[np.ndarray]:
            return best_inputs(shape, ratio, dtype, ties=True)

        body = best_text(shape, k, ratio, dtype=dtype)
        cases.append(Case(f"best-{k}-{dtype}", body, "none", feed=drawn))
    return cases


CASES: dict[str, Case] = {
    c.name: c
    for c in (
        *_elementwise(),
        *_reduce(),
        *_rank(),
        *_products(),
        *_attention(),
        *_selected(),
    )
}

# Steps of a CUDA card alone: where there is no kernel for them no pass makes them, and the op is
# refused (tests/codegen/gen/selection/test_block_scores.py).
OF_A_CARD: dict[str, Case] = {
    f"scores-{width}-{dtype}": Case(
        f"scores-{width}-{dtype}", scores_text(2, 3, 2, width, 70, dtype, weights), "none",
        within=1e-4,
    )
    for width, dtype, weights in ((64, "bf16", ""), (32, "f16", "f32"))
} | {
    f"fragments-{dtype}-{is_linear}": Case(
        f"fragments-{dtype}-{is_linear}", matmul_text(20, 72, 72, is_linear, dtype), "matmul",
        (), FRAGMENTS, WITHIN[dtype],
    )
    for dtype, is_linear in (("bf16", True), ("f16", False))
}  # fmt: skip


def cases(limits: DeviceLimits) -> dict[str, Case]:
    """The list for a device."""
    return CASES | OF_A_CARD if limits.target == "ptx" else CASES
