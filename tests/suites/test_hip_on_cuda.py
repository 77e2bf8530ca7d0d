"""The same HIP text on an NVIDIA GPU, through poot's HIP launcher: needs nvcc, g++ and a driver."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.sources import ROOT


@pytest.mark.cuda
def test_every_list_is_the_oracles(tmp_path: Path):
    out = tmp_path / "hip.json"
    path = [str(ROOT / "src"), str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    done = subprocess.run(
        [sys.executable, "benchmarks/hip_on_cuda.py", "--out", str(out)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path)},
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr[-4000:]
    said = json.loads(out.read_text())
    for part in ("launcher", "requests", "attention", "primitives"):
        assert said[part]["failures"] == []
