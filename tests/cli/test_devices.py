"""`poot devices`."""

from __future__ import annotations

import io

import pytest

from poot.backends.registry import Found
from poot.cli import devices as command
from poot.cli import main
from poot.limits import profile

ROWS = [
    Found("vulkan:0", "llvmpipe", profile("lavapipe"), None),
    Found("wgpu", "", None, "the library wgpu is missing"),
    Found("oracle", "numpy", profile("oracle"), None),
]


def test_each_device_and_each_reason_has_a_line(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(command, "devices", lambda: ROWS)
    out = io.StringIO()
    assert main(["devices"], out, io.StringIO()) == 0
    assert out.getvalue().splitlines() == [
        "vulkan:0  llvmpipe (a CPU that stands in for a GPU)",
        "wgpu      not here: the library wgpu is missing",
        "oracle    numpy",
    ]


def test_the_oracle_is_always_there():
    out = io.StringIO()
    assert main(["devices"], out, io.StringIO()) == 0
    assert "oracle" in out.getvalue()
