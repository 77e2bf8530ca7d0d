"""Runs one command. An error that poot knows is one message and exit code 2; a traceback is a
bug."""

from __future__ import annotations

import importlib
import sys
from typing import Protocol, TextIO

from poot.cli.options import Chat, Command, Devices, Explain, Generate, Serve, parse
from poot.errors import PootError
from poot.extras import refuse_missing

NAMES: dict[type[Command], str] = {
    Devices: "devices",
    Explain: "explain",
    Generate: "generate",
    Chat: "chat",
    Serve: "serve",
}


class Runs(Protocol):
    """A module of one command."""

    def run(self, command: Command, out: TextIO, err: TextIO) -> None: ...


def main(
    arguments: list[str] | None = None, out: TextIO | None = None, err: TextIO | None = None
) -> int:
    """Run `poot` with the arguments (those of the process where None) and return its exit code:
    0, 2 for an error, 130 for an interrupt."""
    command = parse(sys.argv[1:] if arguments is None else arguments)
    text = sys.stdout if out is None else out
    words = sys.stderr if err is None else err
    try:
        module(command).run(command, text, words)
    except PootError as error:
        print(f"poot: {error}", file=words)
        return 2
    except BrokenPipeError:
        return 0  # the reader has seen enough
    except KeyboardInterrupt:
        print("\npoot: interrupted", file=words)
        return 130
    return 0


def module(command: Command) -> Runs:
    """The command's module. It is imported only when asked for, so that no command needs the
    libraries of another. Raises MissingExtra naming the extra that is missing."""
    name = NAMES[type(command)]
    try:
        found: Runs = importlib.import_module(f"poot.cli.{name}")  # pyright: ignore[reportAssignmentType] - a module, by its protocol
    except ModuleNotFoundError as missing:
        refuse_missing(missing, "this command")
    return found
