"""The backend's package: what is found, what is opened, what is refused."""

from __future__ import annotations

import pytest

from poot.backends import cpu
from poot.backends.registry import auto_target, devices, open_device
from poot.errors import BackendUnavailable


def test_the_processor_is_found_by_name_with_its_limits():
    ((text, limits),) = cpu.found()
    assert text
    assert (limits.target, limits.name) == ("llvm", "cpu")
    assert [row.name for row in devices() if row.name.startswith("cpu")] == ["cpu:0"]


def test_there_is_one_and_it_opens_under_its_own_limits():
    assert open_device("cpu").limits == cpu.found()[0][1]
    with pytest.raises(BackendUnavailable, match="asked for cpu:1"):
        cpu.open_device(1)
    with pytest.raises(BackendUnavailable, match="its own limits alone"):
        cpu.open_device(0, limits=cpu.found()[0][1])


def test_auto_takes_it_before_any_software_gpu():
    name = auto_target()
    hardware = [r for r in devices() if r.limits is not None and not r.limits.is_software]
    gpus = [r for r in hardware if r.name.partition(":")[0] not in ("cpu", "oracle")]
    assert name == "cpu:0" or gpus


def test_what_is_missing_is_said(monkeypatch):
    monkeypatch.setattr(cpu, "missing", lambda: "llvmlite is not there: pip install 'poot[cpu]'")
    with pytest.raises(BackendUnavailable, match="llvmlite is not there"):
        cpu.found()
    monkeypatch.setattr(cpu, "missing", lambda: "")
    monkeypatch.setattr(cpu, "host_cpu", lambda: ("old", {"avx2": False, "fma": True}))
    with pytest.raises(BackendUnavailable, match="lacks avx2"):
        cpu.open_device()
