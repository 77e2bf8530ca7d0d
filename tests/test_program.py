"""A compiled program as data."""

from __future__ import annotations

from poot.program import MemoryReport
from tests.support.everywhere import compile_on
from tests.support.steps import append_graph


def test_memory_is_told_by_space_and_whether_it_fits():
    report = MemoryReport((("arena", 1000), ("states", 24)), 1024)
    assert report.nbytes == 1024
    assert report.fits
    assert "fits in 1,024" in str(report)
    tight = MemoryReport(report.spaces, 1023)
    assert "does not fit in 1,023" in str(tight)


def test_a_program_knows_its_memory_key_and_kernels():
    program = compile_on("simulator", append_graph())
    spaces = dict(program.memory().spaces)
    assert {"arena", "results", "slots", "states", "weights"} == set(spaces)
    assert program.key == program.plan.key
    index = program.kernel_index()
    assert sorted(index.values()) == list(range(len(program.codes)))
    for plan in program.plan.lists:
        for step in plan.steps:
            assert all(key in index for key in program.call_keys[step.request])
