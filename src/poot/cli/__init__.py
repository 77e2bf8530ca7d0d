"""The command line: `poot demo`, `poot generate`, `poot devices`, `poot explain`."""

from poot.cli.main import main

__all__ = ["main"]
