"""poot's launcher over a stand-in for ROCm's runtime, in a process of its own for each width of a
wave: the runtime's libraries can be taken but once."""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys

import pytest

from tests.support.hip.fiber_device import WAVES
from tests.support.hip.launcher_checks import CHECKS
from tests.support.sources import ROOT


@functools.cache
def said(wave: int) -> dict[str, str]:
    """What each check said, empty where it was well."""
    command = [sys.executable, "-m", "tests.support.hip.launcher_checks", str(wave)]
    paths = os.pathsep.join((str(ROOT / "src"), str(ROOT)))
    done = subprocess.run(
        command,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": paths},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("name", CHECKS)
@pytest.mark.parametrize("wave", WAVES)
def test_the_launcher(wave: int, name: str):
    assert said(wave)[name] == ""


def test_there_are_checks():
    assert len(CHECKS) > 15
