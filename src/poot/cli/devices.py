"""`poot devices`: every device found and, for each backend without one, the reason."""

from __future__ import annotations

from typing import TextIO

from poot.backends.registry import devices
from poot.cli.options import Command


def run(command: Command, out: TextIO, err: TextIO) -> None:
    """One line a device: the name that `--target` takes, and what it is."""
    rows = devices()
    width = max(len(row.name) for row in rows)
    for row in rows:
        words = row.description if row.reason is None else f"not here: {row.reason}"
        slow = " (a CPU that stands in for a GPU)" if row.limits and row.limits.is_software else ""
        print(f"{row.name:<{width}}  {words}{slow}", file=out)
