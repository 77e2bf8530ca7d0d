"""Programs that were saved, run again."""

from __future__ import annotations

import numpy as np
import pytest

import poot
from poot.backends.cpu.device import CpuDevice
from poot.errors import BackendUnavailable, BindError, CapabilityError, FormatError, RangeError
from tests.support.bundles import program, slots, weights


@pytest.fixture
def saved(tmp_path):
    program().save(tmp_path / "x.poot", weights())
    return tmp_path / "x.poot"


def test_a_loaded_program_is_a_program(saved):
    loaded = poot.load(saved, "cpu")
    assert loaded.explain() == program().explain()
    assert (loaded.key, loaded.target) == (program().key, "cpu")
    assert loaded.memory().nbytes == program().memory().nbytes
    session = loaded.bind(weights())
    assert session.program is loaded
    out = session.step(**slots(0))
    assert isinstance(out, dict)
    assert set(out) == {"out", "next"}
    assert session.profile(**slots(1)).launches
    session.close()


def test_weights_may_be_the_file_that_was_saved(saved):
    by_file = poot.load(saved, "cpu").bind(saved.with_suffix(".safetensors"))
    by_name = poot.load(saved, CpuDevice()).bind(weights())
    for n in range(3):
        one, other = by_file.step(**slots(n)), by_name.step(**slots(n))
        np.testing.assert_array_equal(one["out"], other["out"])


def test_weights_are_checked_as_at_any_bind(saved, tmp_path):
    loaded = poot.load(saved, "cpu")
    with pytest.raises(BindError, match=r"missing w\.a"):
        loaded.bind()
    with pytest.raises(BindError, match=r"w\.a needs f32"):
        loaded.bind(weights() | {"w.a": np.zeros((2, 2), np.float32)})
    bad = weights()
    bad["w.c"][0] = np.nan
    with pytest.raises(BindError, match="holds nan"):
        program().save(tmp_path / "y.poot", bad)
    assert not (tmp_path / "y.poot").exists()
    with pytest.raises(BindError, match="weights_path"):
        program().save(tmp_path / "y.poot", weights_path=tmp_path / "z")


def test_slots_are_checked_as_at_any_step(saved):
    session = poot.load(saved, "cpu").bind(weights())
    with pytest.raises(RangeError, match=r"slot 'pos' needs values in 0\.\.7: \[\] is 8"):
        session.step(**{**slots(0), "pos": 8})


def test_the_first_device_that_can_is_taken(saved):
    assert poot.load(saved).target == "cpu:0"


def test_a_device_that_cannot_is_refused_with_both_sides(saved, tmp_path):
    poot.compile(program().entries["main"].source, "h200").save(tmp_path / "gpu.poot")
    with pytest.raises(CapabilityError, match=r"can't run on cpu: .*takes ptx: it takes llvm"):
        poot.load(tmp_path / "gpu.poot", "cpu")
    with pytest.raises(BackendUnavailable, match="runs on no device here: cpu:0: it needs"):
        poot.load(tmp_path / "gpu.poot")


def test_a_file_that_is_none_or_another_is_refused(saved, tmp_path):
    with pytest.raises(FormatError, match="can't be read"):
        poot.load(tmp_path / "none.poot")
    with pytest.raises(FormatError, match="its sha256 is"):
        poot.load(saved, "cpu", digest="0" * 64)
    assert poot.load(saved, "cpu", digest=poot.load(saved, "cpu").digest.upper())
    with pytest.raises(FormatError, match="no bundle"):
        poot.load(saved.with_suffix(".safetensors"), "cpu")


@pytest.mark.parametrize("path", [3, b"x", "a\0b", None])
def test_what_names_no_file_is_refused(path):
    with pytest.raises(BindError, match="needs a file's path"):
        poot.load(path)
    with pytest.raises(BindError, match="needs a file's path"):
        program().save(path)


def test_arguments_of_another_kind_are_refused(saved, tmp_path):
    with pytest.raises(BindError, match="digest needs"):
        poot.load(saved, "cpu", digest=7)
    with pytest.raises(BackendUnavailable, match="a device's name or a device: got 7"):
        poot.load(saved, 7)
    with pytest.raises(BackendUnavailable, match="no device 'cpu-avx2'"):
        poot.load(saved, "cpu-avx2")
    with pytest.raises(BindError, match="can't be written"):
        program().save(tmp_path / "none" / "x.poot")
    with pytest.raises(BindError, match="needs a dict by names"):
        poot.load(saved, "cpu").bind(7)
