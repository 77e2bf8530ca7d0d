"""Attention of every form on the card, against poot's oracle: masks, ALiBi, softcap, sinks,
log-sum-exp, causal, window, live lengths, paged keys, in each dtype and width that the card's
schedules take. No times.

    python -m benchmarks.attention_checks --out build/checks
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch

from benchmarks.card_kernels import Built, Launcher, assemble, limits_of
from benchmarks.isolated import machine, multiprocessors, run_all, work
from benchmarks.record import save
from poot.codegen.gen.lower import lower
from poot.codegen.ptx.emit import emit_ptx
from poot.device_bytes import from_device, to_device
from poot.ir.text import parse
from poot.limits import DeviceLimits
from poot.planner.grouped import Numbers
from poot.planner.request import Request
from tests.support.attention_forms import Form, form_text
from tests.support.launch import request_of, wanted

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"  # a dry run has none
FOLDER = Path("/tmp/poot-checks")
WITHIN = {"f32": 2e-5, "f16": 4e-3, "bf16": 3e-2}
_INF = float("-inf")
# What each form has besides its sizes.
_FORMS: tuple[dict[str, object], ...] = (
    {},
    {"live": True},
    {"live": True, "paged": True},
    {"paged": True, "lse": True},
    {"softcap": 3.0},
    {"mask": "k"},
    {"mask": "h"},
    {"mask": "bhqk", "fill": _INF, "live": True},
    {"mask": "bk", "fill": -1e9},
    {"sink": True, "lse": True},
    {"sink": True, "mask": "qk", "softcap": 5.0, "live": True, "lse": True},
    {"causal": 150},
    {"causal": 150, "window": 40},
    {"causal": 150, "live": True, "mask": "hk", "sink": True},
    {"causal": 150, "window": 40, "live": True, "paged": True},
    {"begin": True, "sink": True},
    {"begin": True, "live": True, "paged": True, "sink": True},
)
# What codes of 8 bits are checked with besides.
_CODED: tuple[dict[str, object], ...] = (
    {"codes": "i8", "query": "bf16"},
    {"codes": "f8e4m3", "query": "bf16"},
    {"codes": "i8"},
)


@dataclass(frozen=True, slots=True)
class Check:
    """A form by name."""

    form: Form

    @property
    def name(self) -> str:
        return str(self.form)

    @property
    def schedule(self) -> str:
        return ""

    @property
    def numbers(self) -> Numbers | None:
        return None

    def text(self) -> str:
        return form_text(self.form)[0]


def checks() -> Iterator[Check]:
    """Decodes and prefills of every form."""
    for width, dtypes in ((64, ("bf16", "f32")), (128, ("bf16", "f16", "f32")), (256, ("bf16",))):
        for dtype in dtypes:
            for rest in _FORMS:
                decode = Form(5, 8, 2, 1, 300, width, width, dtype, scale=width**-0.5)
                yield Check(replace(decode, **rest))  # type: ignore[arg-type]
                if dtype != "f32" and "begin" not in rest:
                    prefill = Form(2, 4, 2, 150, 300, width, width, dtype, scale=width**-0.5)
                    yield Check(replace(prefill, **rest))  # type: ignore[arg-type]
    for width in (64, 128, 256):
        for codes in _CODED:
            for rest in _FORMS:
                decode = Form(5, 8, 2, 1, 300, width, width, "f32", scale=width**-0.5)
                yield Check(replace(decode, **codes, **rest))  # type: ignore[arg-type]
    for width, value_width, shared in ((192, 128, 0), (192, 128, 64), (128, 64, 0), (96, 64, 32)):
        for rest in _FORMS:
            if "begin" not in rest and not (shared and rest.get("paged")):
                form = Form(2, 4, 2, 150, 300, width, value_width, "bf16", shared=shared,
                            scale=width**-0.5)  # fmt: skip
                yield Check(replace(form, **rest))  # type: ignore[arg-type]
    yield from _split_keys()


def _split_keys() -> Iterator[Check]:
    """DeepSeek's sizes with a shared part: prefill, and decode over one latent head."""
    for dtype in ("bf16", "f32"):
        for rest in (
            {},
            {"live": True, "paged": True},
            {"causal": 150, "lse": True},
            {"sink": True, "mask": "k", "live": True},
        ):
            prefill = Form(2, 8, 8, 20, 300, 192, 128, dtype, shared=64, scale=192**-0.5)
            decode = Form(2, 16, 1, 1, 300, 576, 512, dtype, shared=64, scale=192**-0.5)
            for form in (prefill, decode):
                yield Check(replace(form, **rest))  # type: ignore[arg-type]


CHECKS = {c.name: c for c in checks()}


def _request(check: Check, limits: DeviceLimits) -> Request:
    return request_of(parse(check.text()), "attention", limits=limits)


def _kernels(check: Check, limits: DeviceLimits) -> list[Built]:
    """Every launch of a form, each under a name of its own."""
    request = _request(check, limits)
    out: list[Built] = []
    for n, call in enumerate(lower(request, limits).calls):
        _, text = emit_ptx(call.kernel, limits)
        named = _Named(f"{check.name} {n}", check)
        out.append(Built(named, call, text, request.schedule.name, 0))
    return out


@dataclass(frozen=True, slots=True)
class _Named:
    """A launch of a form."""

    name: str
    check: Check

    @property
    def schedule(self) -> str:
        return self.check.schedule

    @property
    def numbers(self) -> Numbers | None:
        return None

    def text(self) -> str:
        return self.check.text()


def _on_card(data: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(np.ascontiguousarray(data).view(np.uint8).reshape(-1).copy()).to(DEVICE)


def run(check: Check) -> dict[str, object]:
    """One form on the card: the largest error over what is allowed, and whether all is right."""
    limits = limits_of(torch.cuda.get_device_properties(0).multi_processor_count)
    request = _request(check, limits)
    feed = list(form_text(check.form)[1].values())
    body = request.body
    held: dict[tuple[str, int], torch.Tensor] = {}
    for n, (i, x) in enumerate(zip(body.inputs, feed, strict=True)):
        held["in", n] = _on_card(to_device(x, i.var.type))
    for n, v in enumerate(body.outputs):
        held["out", n] = torch.full((v.type.nbytes + 64,), 0xA5, dtype=torch.uint8, device=DEVICE)
    for n, s in enumerate(request.scratch):
        held["scratch", n] = torch.full((4 * s.elems + 64,), 255, dtype=torch.uint8, device=DEVICE)
    pointers = {key: t.data_ptr() for key, t in held.items()}
    for built in _kernels(check, limits):
        launcher = Launcher(built, FOLDER)
        arguments = launcher.arguments(pointers)
        for _ in range(2):
            launcher.run(arguments, torch.cuda.current_stream().cuda_stream)
    torch.cuda.synchronize()
    worst = 0.0
    for n, (v, want) in enumerate(zip(body.outputs, wanted(request, feed), strict=True)):
        raw = held["out", n].cpu().numpy()[: -(-v.type.nbytes // 4) * 4]
        got, right = from_device(raw, v.type).astype(np.float64), want.astype(np.float64)
        same = (got == right) | (np.isnan(got) & np.isnan(right))
        with np.errstate(invalid="ignore"):
            error = np.where(same, 0.0, np.abs(got - right) / (1.0 + np.abs(right)))
        error = np.where(np.isnan(error), np.inf, error)
        worst = max(worst, float(error.max()) / WITHIN[check.form.dtype])
    rests = all(
        bool((held["scratch", n][: 4 * s.elems] == 255).all())
        for n, s in enumerate(request.scratch)
        if s.at_rest
    )
    name = request.schedule.name
    return {"schedule": name, "worst": worst, "rests": rests, "right": worst <= 1 and rests}


def _build(check: Check, limits: DeviceLimits) -> None:
    for built in _kernels(check, limits):
        assemble(built, FOLDER)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path(os.environ.get("OUT", "build/checks")))
    parser.add_argument("--seconds", type=float, default=200)
    parser.add_argument("--worker", nargs="+", default=[])
    given = parser.parse_args()
    if given.worker:
        _, log, *names = given.worker
        work(names, Path(log), lambda name: run(CHECKS[name]))
        return 0
    end = time.time() + given.seconds
    given.out.mkdir(parents=True, exist_ok=True)
    FOLDER.mkdir(parents=True, exist_ok=True)
    limits = limits_of(multiprocessors())
    with ThreadPoolExecutor(16) as pool:
        list(pool.map(lambda check: _build(check, limits), CHECKS.values()))
    log = given.out / "checks-rows.jsonl"
    log.unlink(missing_ok=True)
    reports = run_all("benchmarks.attention_checks", list(CHECKS), FOLDER, log, end)
    wrong = {n: reports.get(n, {}) for n in CHECKS if not reports.get(n, {}).get("right")}
    by_schedule: dict[str, int] = {}
    for report in reports.values():
        if report.get("right"):
            key = str(report["schedule"])
            by_schedule[key] = by_schedule.get(key, 0) + 1
    result = {**machine("benchmarks.attention_checks"), "wrong": wrong, "rows": reports}
    save(given.out / "attention-checks.json", result)
    print(f"{len(CHECKS) - len(wrong)} of {len(CHECKS)} forms right: {by_schedule}")
    for name, report in list(wrong.items())[:12]:
        print(f"  not: {name}: {str(report)[:300]}")
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
