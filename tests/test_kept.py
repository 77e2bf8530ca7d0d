"""Programs in the disk cache: taken where they are the same, ignored where they aren't whole."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

import poot
from poot import api, kept, ops
from poot.api import Program
from poot.cache import DiskCache
from poot.errors import ValidationError
from poot.knobs import knobs
from poot.limits import profile
from poot.making import Options
from poot.passes.pipeline import PIPELINE, Pass, PassReport
from poot.passes.regions.apart import APART
from poot.planner import stream
from tests.support.steps import WEIGHTS, X, append_graph

LIMITS = profile("cpu-avx2")
OPTIONS = Options(PIPELINE, False, None)


@pytest.fixture(autouse=True)
def _everything_is_kept(monkeypatch, tmp_path):
    monkeypatch.setattr(kept, "LEAST_EQNS", 1)
    monkeypatch.setenv("POOT_CACHE_DIR", str(tmp_path))
    monkeypatch.delenv("POOT_CHECK", raising=False)


def graphs():
    return {"a": append_graph(1), "b": append_graph(2)}


def compiled(target="cpu-avx2", **options) -> Program:
    return poot.compile(graphs(), target, **options)


def unnamed(lists):
    """Launch lists without the names of what lies in the results: a device needs none."""

    def plain(x):
        return x and replace(
            x,
            outputs=tuple((t, replace(p, name="")) for t, p in x.outputs),
            records=tuple(replace(p, name="") for p in x.records),
            feed=plain(x.feed),
        )

    return {name: plain(x) for name, x in lists.lists.items()}


def no_stage(*given):
    pytest.fail("a stage ran")


def test_a_second_compile_runs_no_stage_and_is_the_same_program(monkeypatch):
    for target in ("cpu-avx2", "webgpu-baseline", "h200", "rdna3"):
        first = compiled(target)
        assert first.kept is None
        with monkeypatch.context() as patched:
            patched.setattr(api, "make_whole", no_stage)
            again = compiled(target)
            assert again.kept is not None
            assert list(again.seconds) == ["kept"]
            ours, theirs = again.lists(), first.lists()
            assert again.memory() == first.memory()
        assert (again.key, again.target, again.limits) == (first.key, target, first.limits)
        assert again.kernel_index() == first.kernel_index()
        assert [c.binary for c in again.codes] == [c.binary for c in first.codes]
        assert unnamed(ours) == unnamed(theirs)
        assert ours.residents == theirs.residents
        assert ours.spaces == theirs.spaces
        assert ours.consts == theirs.consts
        for name, signature in theirs.signatures.items():
            got = ours.signatures[name]
            assert [(i.name, i.var.type, i.storage) for i in got.inputs] == [
                (i.name, i.var.type, i.storage) for i in signature.inputs
            ]
            assert replace(got, inputs=()) == replace(signature, inputs=())


def test_a_kept_program_steps_alike_and_names_the_line_of_a_guard():
    pytest.importorskip("llvmlite")

    def run(program: Program) -> list[np.ndarray]:
        session = program.bind(WEIGHTS)
        out = session.step("a", x=X, pos=np.int32(2), at=np.int32(5))
        with pytest.raises(ValidationError, match=r"needs values in 0\.\.") as failed:
            session.step("a", x=X, pos=np.int32(2), at=np.int32(9))
        assert "steps.py:" in failed.value.loc
        return [np.asarray(out["sum"]), np.asarray(out["next"]), session.state["kv"]]

    first, again = compiled("cpu"), compiled("cpu")
    assert again.kept is not None
    for ours, theirs in zip(run(again), run(first), strict=True):
        np.testing.assert_array_equal(ours, theirs)
    assert not again.whole.is_made


def test_what_only_the_stages_have_is_made_when_it_is_asked_for(tmp_path):
    first, again = compiled(), compiled()
    assert again.kept is not None
    assert not again.whole.is_made
    assert again.explain() == first.explain()
    assert again.whole.is_made
    assert again.text("plan") == first.text("plan")
    assert again.plan == first.plan
    assert list(again.lowered) == list(first.lowered)
    again.save(tmp_path / "again.poot")
    first.save(tmp_path / "first.poot")
    assert (tmp_path / "again.poot").read_bytes() == (tmp_path / "first.poot").read_bytes()


def test_consts_come_from_the_graph_at_hand():
    table = np.arange(6, dtype=np.float32)

    def add(x):
        return x + table

    def program() -> Program:
        return poot.compile(poot.trace(add, (poot.slot((6,), "f32"),)), "cpu-avx2")

    first, again = program(), program()
    assert again.kept is not None
    assert again.kept.consts == {}
    assert again.lists().consts == first.lists().consts
    assert len(again.lists().consts) == 1


def test_all_that_decides_a_program_is_in_its_key(monkeypatch):
    keys = [kept.program_key(graphs(), LIMITS, OPTIONS)]
    assert keys[0] == kept.program_key(graphs(), LIMITS, OPTIONS)
    for other in (replace(OPTIONS, assume_hidden=True), replace(OPTIONS, memory_budget=1 << 20),
                  replace(OPTIONS, passes=())):  # fmt: skip
        keys.append(kept.program_key(graphs(), LIMITS, other))
    keys.append(kept.program_key(graphs(), replace(LIMITS, cores=LIMITS.cores + 1), OPTIONS))
    keys.append(kept.program_key({"a": append_graph(1)}, LIMITS, OPTIONS))
    keys.append(kept.program_key({"a": append_graph(2), "b": append_graph(2)}, LIMITS, OPTIONS))
    keys.append(kept.program_key({"c": append_graph(1), "b": append_graph(2)}, LIMITS, OPTIONS))
    monkeypatch.setattr(stream, "WARPS", stream.WARPS + 1)
    keys.append(kept.program_key(graphs(), LIMITS, OPTIONS))
    assert None not in keys
    assert len(set(keys)) == len(keys)


def test_another_constant_is_another_program():
    def key(table: np.ndarray) -> str | None:
        graph = poot.trace(lambda x: ops.take(table, x), (poot.slot((2,), "i32", range=(0, 99)),))
        return kept.program_key({"main": graph}, LIMITS, OPTIONS)

    table = np.arange(99, dtype=np.float32)
    other = table.copy()
    other[98] = 0
    assert key(table) == key(table.copy()) != key(other)


def test_other_source_is_another_compiler(tmp_path):
    room = tmp_path / "passes"
    room.mkdir()
    assert kept._source_digest.__wrapped__(tmp_path) is None
    (room / "one.py").write_text("x = 1\n")
    first = kept._source_digest.__wrapped__(tmp_path)
    (room / "one.py").write_text("x = 2\n")
    assert kept._source_digest.__wrapped__(tmp_path) != first
    assert first is not None


def test_small_programs_those_of_others_passes_and_the_oracles_are_not_kept(monkeypatch):
    own = (Pass("canonicalize", lambda graph, limits: pytest.fail("ran")),)
    assert kept.program_key(graphs(), LIMITS, Options(own, False, None)) is None
    assert kept.program_key(graphs(), profile("oracle"), OPTIONS) is None
    monkeypatch.setattr(kept, "LEAST_EQNS", 10_000)
    assert kept.program_key(graphs(), LIMITS, OPTIONS) is None


def test_a_compile_that_is_checked_or_has_no_cache_is_done(monkeypatch):
    compiled()
    assert compiled(cache=False).kept is None
    monkeypatch.setenv("POOT_CHECK", "1")
    assert compiled().kept is None


def test_a_program_with_a_step_taken_apart_is_not_kept_so_that_each_compile_says_so(tmp_path):
    disk, key = DiskCache(tmp_path / "other"), "0" * 64
    whole = compiled(cache=False).whole()
    kept.keep(disk, key, whole)
    assert disk.get(key) is not None
    entries = dict(whole.entries)
    report = PassReport(APART, entries["a"].final, (), ())
    entries["a"] = replace(entries["a"], reports=(*entries["a"].reports, report))
    kept.keep(disk, "1" * 64, replace(whole, entries=entries))
    assert disk.get("1" * 64) is None


def _entry() -> tuple[DiskCache, str, dict[str, object], bytes]:
    """A kept program's place, its head and what follows."""
    disk, key = DiskCache(knobs().cache_dir), kept.program_key(graphs(), LIMITS, OPTIONS)
    assert key is not None
    data = disk.get(key)
    assert data is not None
    size = int.from_bytes(data[:8], "little")
    return disk, key, json.loads(data[8 : 8 + size]), data[8 + size :]


def _of_another_format(head):
    head["format"] = "poot program 0"


def _of_other_kernels(head):
    head["codes"].reverse()


def _of_a_kernel_that_is_gone(head):
    head["requests"][0] = "0" * 64


def _of_a_key_that_is_none(head):
    head["requests"][0] = "../" * 20


def _with_an_unknown_input(head):
    head["entries"][0]["inputs"][0] = "nobody's"


def _with_a_launch_outside(head):
    head["entries"][0]["launches"][0]["buffers"][0]["offset"] = 1 << 40


def _with_an_entry_twice(head):
    head["entries"][1] = head["entries"][0]


def _with_fewer_entries(head):
    head["entries"].pop()


def _with_a_const_too_many(head):
    head["consts"] = [{"name": "const:x", "nbytes": 4}]


def _with_a_small_weight(head):
    (row,) = [r for r in head["residents"] if r["name"].split("@")[0] == "w"]
    row["shape"] = [1, 1]


def _with_an_output_dropped(head):
    head["entries"][0]["outputs"].pop()


def _with_an_output_of_another_type(head):
    (row, *_) = head["entries"][0]["outputs"]
    row["shape"] = [*row["shape"], 1]


def _with_a_record_dropped(head):
    head["entries"][0]["records"].pop()
    head["entries"][0]["late"].pop()


def _with_an_input_twice(head):
    head["entries"][0]["inputs"] *= 2


def _with_fewer_inputs(head):
    head["entries"][0]["inputs"].pop()


def _with_a_slot_written(head):
    head["entries"][0]["written"] = ["x"]


def _with_nothing(head):
    head.clear()


@pytest.mark.parametrize(
    "change",
    [_of_another_format, _of_other_kernels, _of_a_kernel_that_is_gone, _of_a_key_that_is_none,
     _with_an_unknown_input, _with_a_launch_outside, _with_an_entry_twice, _with_fewer_entries,
     _with_a_const_too_many, _with_a_small_weight, _with_an_output_dropped,
     _with_an_output_of_another_type, _with_a_record_dropped, _with_an_input_twice,
     _with_fewer_inputs,     _with_a_slot_written, _with_nothing],
)  # fmt: skip
def test_an_entry_that_is_not_whole_is_compiled_anew_and_replaced(change):
    first = compiled()
    disk, key, head, rest = _entry()
    change(head)
    text = json.dumps(head).encode()
    disk.put(key, len(text).to_bytes(8, "little") + text + rest)
    anew = compiled()
    assert anew.kept is None
    assert anew.lists() == first.lists()
    assert compiled().kept is not None


def test_bytes_of_any_kind_are_compiled_anew():
    compiled()
    disk, key, _, _ = _entry()
    for data in (b"", b"\xff" * 7, b"\0" * 8, (1 << 62).to_bytes(8, "little") + b"[]"):
        disk.put(key, data)
        assert compiled().kept is None
