"""Prints what pip must install for the extras named, one requirement a line.

`python scripts/requirements.py vulkan wgpu test`: poot's own requirements and those of the extras,
from pyproject.toml, less each checker whose program is on PATH already.
"""

from __future__ import annotations

import shutil
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
# A package that is needed only for one program -> that program. Debian's spirv-val is too old for
# cooperative matrices, so its package is always fetched.
PROGRAMS = {"nvidia-cuda-nvcc": "ptxas"}


def package(requirement: str) -> str:
    """The bare name: `pyright[nodejs]==1.2` gives `pyright`."""
    name = requirement
    for sign in "[<>=!~; ":
        name = name.split(sign)[0]
    return name


def requirements(extras: list[str]) -> list[str]:
    """Sorted and without doubles. Raises KeyError on an extra that pyproject.toml doesn't have."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = set(project["dependencies"])
    for extra in extras:
        wanted |= set(project["optional-dependencies"][extra])
    there = {name for name, program in PROGRAMS.items() if shutil.which(program)}
    return sorted(r for r in wanted if package(r) not in there)


if __name__ == "__main__":
    print("\n".join(requirements(sys.argv[1:])))
