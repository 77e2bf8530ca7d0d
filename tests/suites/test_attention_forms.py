"""Every form of the attention eqn on every target, equal to the oracle: alone, mixed, and split."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from poot.api import compile as compile_program
from poot.ir.text import parse
from poot.limits import PROFILES
from poot.oracle import run
from poot.planner.schedules import choose
from tests.support.attention_forms import ALONE, DECODES, MIXED, Form, form_text
from tests.support.everywhere import compile_on, on, run_program
from tests.support.tol import assert_within


def check(target: str, form: Form, edit: dict[str, np.ndarray] | None = None) -> str:
    """Compiles and runs one form; the schedule it ran by."""
    text, feed = form_text(form)
    feed |= edit or {}
    graph = parse(text)
    program = compile_on(target, graph)
    want = run(graph, feed)
    got = run_program(program, feed)
    for mine, theirs in zip(got.outputs, want.outputs, strict=True):
        assert_within(mine, theirs, "attention", str(form))
    return program.entries["main"].plan.steps[0].request.schedule.name


@on()
def test_each_form_alone(target: str):
    for form in ALONE:
        check(target, form)


@on()
def test_forms_together(target: str):
    for form in MIXED:
        check(target, form)


@on(but="cuda")
def test_a_decode_of_few_rows_is_split_over_its_keys(target: str):
    split = {"split_kv", "streaming", "key_blocks", "grouped_split"}
    assert {check(target, form) for form in DECODES} <= split


@on()
def test_an_unused_slot_of_a_live_cache_never_reaches_the_result(target: str):
    for base in (Form(live=True), Form(live=True, paged=True), Form(1, 1, 1, 1, 300, live=True)):
        text, feed = form_text(base)
        program = compile_on(target, parse(text))
        feed["len"] = np.full(base.batch, 7, np.int32)
        clean = run_program(program, feed).outputs[0]
        for poison in (np.nan, np.inf, -np.inf, 65504.0):
            bad = {name: x.copy() for name, x in feed.items()}
            if base.paged:
                used = set(feed["read"][:, :7].reshape(-1).tolist())
                unused = [s for s in range(feed["k"].shape[0]) if s not in used]
                bad["k"][unused] = bad["v"][unused] = poison
            else:
                bad["k"][:, :, 7:] = bad["v"][:, :, 7:] = poison
            np.testing.assert_array_equal(run_program(program, bad).outputs[0], clean)


@on()
def test_a_length_out_of_its_bounds_reads_nothing_outside(target: str):
    form = Form(live=True)
    text, feed = form_text(form)
    graph = parse(text.replace(f" range=(1, {form.keys + 1})", ""))
    program = compile_on(target, graph)
    whole = run_program(program, feed | {"len": np.full(form.batch, form.keys, np.int32)})
    wild = run_program(program, feed | {"len": np.full(form.batch, 2**31 - 1, np.int32)})
    np.testing.assert_array_equal(wild.outputs[0], whole.outputs[0])
    none = run_program(program, feed | {"len": np.full(form.batch, -5, np.int32)})
    assert np.isnan(none.outputs[0]).all()


@on()
def test_a_row_without_a_visible_key_is_nan_and_touches_no_other(target: str):
    form = Form(mask="qk", fill=float("-inf"), lse=True)
    text, feed = form_text(form)
    feed["mask"][:] = True
    program = compile_on(target, parse(text))
    whole = run_program(program, feed)
    feed["mask"][:, :, 1] = False
    out, lse = run_program(program, feed).outputs
    assert np.isnan(out[:, :, 1]).all()
    assert (lse[:, :, 1] == -np.inf).all()
    np.testing.assert_array_equal(out[:, :, [0, 2]], whole.outputs[0][:, :, [0, 2]])


@on()
def test_a_nan_score_reaches_its_row_alone(target: str):
    text, feed = form_text(Form())
    program = compile_on(target, parse(text))
    feed["q"][0, 0, 1] = np.nan
    out = run_program(program, feed).outputs[0]
    assert np.isnan(out[0, 0, 1]).all()
    assert np.isfinite(out[0, 0, [0, 2]]).all()
    assert np.isfinite(out[1]).all()


@on()
def test_a_sink_without_a_visible_key_gives_zero(target: str):
    form = replace(Form(), sink=True, mask="qk", fill=float("-inf"))
    text, feed = form_text(form)
    feed["mask"][:, :, 1] = False
    out = run_program(compile_on(target, parse(text)), feed).outputs[0]
    np.testing.assert_array_equal(out[:, :, 1], 0)


@pytest.mark.parametrize("form", [Form(1, 1, 1, 1, 300), Form(1, 4, 2, 1, 255)], ids=str)
def test_the_choice_to_split_follows_the_compute_units(form: Form):
    graph = parse(form_text(form)[0])
    few = replace(PROFILES["webgpu-baseline"], compute_units=1)
    assert choose(graph, "attention", (), few).schedule.name == "streaming"
    chosen = choose(graph, "attention", (), PROFILES["webgpu-baseline"])
    assert chosen.schedule.name == ("split_kv" if form.keys >= 256 else "streaming")


def test_a_split_decode_launches_a_group_for_each_split_and_row():
    """Case 38: no group more, and the combine has one a row."""
    form = Form(1, 3, 1, 1, 700)
    program = compile_program(parse(form_text(form)[0]), "webgpu-baseline", cache=False)
    (step,) = program.entries["main"].plan.steps
    splits = step.request.schedule.get("splits")
    grids = [call.grid for call in program.lowered[step.request].calls]
    assert splits > 1
    assert grids == [(3 * splits, 1, 1), (3, 1, 1)]


def layers(count: int) -> str:
    """So many decodes of 600 keys, one after the other over caches of their own, and a product."""
    lines = ['slot v0: f32[1,2,1,8] "q"']
    for n in range(count):
        lines += [f'slot v{1 + 2 * n}: f32[1,1,600,8] "k{n}"',
                  f'slot v{2 + 2 * n}: f32[1,1,600,8] "v{n}"']  # fmt: skip
    for n in range(count):
        out = 1 + 2 * count + n
        lines.append(
            f"v{out}: f32[1,2,1,8] = attention(v{out - 1 if n else 0}, v{1 + 2 * n}, v{2 + 2 * n})"
            " operands=(q, k, v) scale=0.25"
        )
    last = 3 * count
    lines.insert(2 * count + 1, f'weight v{last + 1}: f32[8,8] "w"')
    lines.append(f"v{last + 2}: f32[1,2,1,8] = matmul(v{last}, v{last + 1})")
    return "\n".join([*lines, f"out v{last + 2}"])


def test_the_arena_of_32_layers_with_split_keys_is_that_of_2():
    programs = [compile_program(parse(layers(n)), "webgpu-baseline", cache=False) for n in (2, 32)]
    schedules = [s.request.schedule.name for s in programs[1].entries["main"].plan.steps]
    assert set(schedules[:-1]) == {"split_kv"}
    two, many = (dict(p.plan.spaces)["arena"] for p in programs)
    assert two == many
    assert len(programs[0].codes) == len(programs[1].codes)
