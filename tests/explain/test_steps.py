"""Steps as rows, with arcs and times."""

from __future__ import annotations

from poot.explain.steps import arcs, step_times, steps
from poot.profile import Profile
from tests.support.explained import WEIGHTS, explained_program
from tests.support.html import parsed


def test_an_arc_goes_from_the_last_writer_to_each_reader():
    plan = explained_program().entries["main"].plan
    found = arcs(plan)
    assert found
    for made, read in found:
        written = {p.name for p in plan.steps[made].outs}
        wanted = {p.name for p in plan.steps[read].ins}
        assert made < read
        assert written & wanted


def test_a_step_s_time_is_the_sum_of_its_launches():
    program = explained_program()
    plan = program.entries["main"].plan
    counts = [len(program.lowered[s.request].calls) for s in plan.steps]
    launches = tuple(("op", "kernel", float(n)) for n in range(sum(counts)))
    times = step_times(program, plan, Profile("main", launches))
    assert len(times) == len(plan.steps)
    assert sum(times) == sum(t for *_, t in launches)
    assert times[0] == sum(range(counts[0]))


def test_a_profile_of_another_program_gives_no_times():
    program = explained_program()
    plan = program.entries["main"].plan
    assert step_times(program, plan, Profile("main", (("op", "kernel", 1.0),) * 99)) == []


def test_rows_link_to_their_kernels_and_show_measured_times():
    program = explained_program("cpu")
    session = program.bind(WEIGHTS)
    profile = session.profile(x=[[0.5] * 64] * 16)
    session.close()
    plan = program.entries["main"].plan
    page = parsed(steps(program, plan, profile))
    assert page.with_class("time") == len(plan.steps)
    links = {a["href"] for name, a in page.tags if name == "a"}
    assert links == {f"#kernel{n}" for n in range(len(program.codes))}
    assert parsed(steps(program, plan, None)).with_class("time") == 0


def test_a_time_that_the_backend_can_not_tell_is_said():
    program = explained_program()
    plan = program.entries["main"].plan
    launches = sum(len(program.lowered[s.request].calls) for s in plan.steps)
    nan = Profile("main", (("op", "kernel", float("nan")),) * launches)
    assert "not told" in parsed(steps(program, plan, nan)).words
