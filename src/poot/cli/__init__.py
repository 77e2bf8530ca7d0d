"""The command line: `poot demo`, `generate`, `chat`, `serve`, `devices`, `explain`."""

from poot.cli.main import main

__all__ = ["main"]
