"""The pytest plugin that counts tests per target and says which of them may skip.

Under POOT_REQUIRE a skip is a failure, whatever asked for it, but for tests marked `cuda`, `h200`
or `amd` on a machine without that hardware; naming a target there makes its mark fail too.
"""

from __future__ import annotations

import ctypes
import functools
from collections import Counter
from collections.abc import Generator
from pathlib import Path

import pytest

TARGETS = (
    "oracle", "simulator", "ptx", "cpu", "vulkan", "wgpu", "webgpu-baseline", "cuda", "hip",
    "hip-fibers-32", "hip-fibers-64",
)  # fmt: skip
HARDWARE = {"cuda": "cuda", "h200": "cuda", "amd": "hip"}  # mark -> the target that it is for


def target_of(item: pytest.Item) -> str | None:
    """The target that a test counts for: its parameter of that name, else its folder.

    The parameter, or the fixture that has it, is called `target`, `backend` or `device`; an index
    may follow ("vulkan:0")."""
    if isinstance(item, pytest.Function) and hasattr(item, "callspec"):
        for name in ("target", "backend", "device"):
            value = item.callspec.params.get(name)
            if isinstance(value, str) and value.partition(":")[0] in TARGETS:
                return value.partition(":")[0]
    parts = item.path.parts
    if "backends" in parts:
        folder = parts[parts.index("backends") + 1]
        return folder if folder in TARGETS else None
    return None


@functools.cache
def _cuda_device() -> str | None:
    """The name of the first CUDA device, or None."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return None
    device, name = ctypes.c_int(), ctypes.create_string_buffer(256)
    if driver.cuInit(0) or driver.cuDeviceGet(ctypes.byref(device), 0):
        return None
    return name.value.decode() if not driver.cuDeviceGetName(name, 256, device) else None


def missing_hardware(mark: str) -> str | None:
    """Why a test with this mark can't run here, or None."""
    if mark == "amd":
        return None if Path("/dev/kfd").exists() else "no AMD GPU: /dev/kfd is not there"
    device = _cuda_device()
    if device is None:
        return "no CUDA device: libcuda.so.1 is not there, or finds none"
    if mark == "h200" and "H200" not in device:
        return f"no H200: the first CUDA device is {device}"
    return None


class Targets:
    """Skips what lacks hardware, turns other skips into failures where asked, counts by target."""

    def __init__(self, require: tuple[str, ...]) -> None:
        unknown = sorted(set(require) - set(TARGETS))
        if unknown:
            raise pytest.UsageError(
                f"POOT_REQUIRE names {', '.join(unknown)}; the targets are {', '.join(TARGETS)}"
            )
        self.require = require
        self.counts: Counter[tuple[str, str]] = Counter()

    def _may_skip(self, item: pytest.Item) -> bool:
        marks = [m for m in HARDWARE if item.get_closest_marker(m)]
        lacking = [m for m in marks if missing_hardware(m)]
        return bool(lacking) and not any(HARDWARE[m] in self.require for m in marks)

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        for item in items:
            target = target_of(item)
            if target is not None:
                item.user_properties.append(("target", target))
            slow = any(item.get_closest_marker(m) for m in ("slow", "fuzz", *HARDWARE))
            if target in (None, "oracle") and not slow:
                item.add_marker("quick")

    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        for mark in HARDWARE:
            why = missing_hardware(mark) if item.get_closest_marker(mark) else None
            if why is not None:
                pytest.skip(why)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        skipped = report.skipped and not hasattr(report, "wasxfail")
        if skipped and self.require and not self._may_skip(item):
            report.outcome = "failed"
            report.longrepr = f"skipped, which POOT_REQUIRE forbids: {_reason(report.longrepr)}"
        return report

    @pytest.hookimpl(wrapper=True)
    def pytest_make_collect_report(
        self,
    ) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
        report = yield
        if report.skipped and self.require:
            report.outcome = "failed"
            report.longrepr = f"skipped, which POOT_REQUIRE forbids: {_reason(report.longrepr)}"
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.passed and report.when != "call":
            return
        for name, value in report.user_properties:
            if name == "target":
                self.counts[str(value), report.outcome] += 1

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        terminalreporter.section("tests per target")
        for target in TARGETS:
            row = [f"{self.counts[target, o]} {o}" for o in ("passed", "failed", "skipped")]
            if target not in self.require and not any(t == target for t, _ in self.counts):
                continue
            need = "  (required)" if target in self.require else ""
            terminalreporter.line(f"{target}: {', '.join(row)}{need}")


def _reason(longrepr: object) -> str:
    """The words of a skip: pytest holds them as (file, line, text)."""
    return str(longrepr[2]) if isinstance(longrepr, tuple) and len(longrepr) == 3 else str(longrepr)
