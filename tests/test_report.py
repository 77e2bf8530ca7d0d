"""What a compile did, as text."""

from __future__ import annotations

import pytest

import poot
from poot import ops
from poot.errors import BindError
from tests.support.everywhere import compile_on
from tests.support.steps import append_graph


def lines_of(graph) -> list[str]:
    return compile_on("simulator", graph).explain().splitlines()


def test_an_explanation_says_how_state_is_written():
    lines = [line.strip() for line in lines_of(append_graph())]
    assert "guards: 1 before all State writes, 0 behind one" in lines
    assert "slots checked where they come from the device: pos" in lines
    assert any(line.startswith("State: 2 steps write it under") for line in lines)
    assert not any("put back" in line for line in lines)


def test_an_explanation_names_what_is_kept_and_what_is_copied_whole():
    def step(count, kv, x, at):
        kv = ops.dynamic_update_slice(kv, x, at, axis=0)
        ops.validate(kv.sum() < 9.0)
        return kv.sum(), (count + 1, kv)

    specs = (poot.state((), "i32"), poot.state((8, 4)), poot.slot((1, 4), "f32"))
    graph = poot.trace(step, (*specs, poot.slot((), "i32", range=(0, 8))))
    text = "\n".join(lines_of(graph))
    assert "guards: 0 before all State writes, 1 behind one" in text
    assert "State: 20 bytes kept, to be put back if a guard fails  at " in text
    assert "test_report.py" in text
    assert "State: 4 bytes of states" in text
    assert "written whole, by a copy" in text


def test_a_program_that_can_not_fail_says_nothing_of_guards():
    graph = poot.trace(lambda x: ops.exp(x), (poot.slot((4,), "f32"),))
    assert not any("State" in line or "guards" in line for line in lines_of(graph))


@pytest.mark.parametrize("stage", ["trace", "final", "plan", "records", "regions", "kernels"])
def test_every_stage_is_a_text(stage: str):
    assert compile_on("simulator", append_graph()).text(stage)


def test_the_plan_names_values_with_their_places():
    text = compile_on("simulator", append_graph()).text("plan", "main")
    assert "kv@states+0" in text
    assert "main/v" in text


def test_an_unknown_stage_is_refused_with_the_list():
    with pytest.raises(BindError, match=r"no stage 'nothing'; stages: trace, final, plan"):
        compile_on("simulator", append_graph()).text("nothing")
    with pytest.raises(BindError, match="no entry point 'side'; entry points: main"):
        compile_on("simulator", append_graph()).text("plan", "side")


def test_every_stage_of_a_compile_is_dumped_where_the_knob_says(tmp_path, monkeypatch):
    monkeypatch.setenv("POOT_DUMP", str(tmp_path))
    program = poot.compile(append_graph(), "webgpu-baseline", cache=False)
    names = {p.name for p in tmp_path.rglob("*.txt")}
    assert {"main.00-trace.txt", "kernel0.txt", "explain.txt"} <= names
    assert any(name.endswith("-attention.txt") for name in names)
    (trace,) = tmp_path.rglob("main.00-trace.txt")
    assert trace.read_text().startswith(program.text("trace").splitlines()[0])
