"""Progress on stderr while a model loads and compiles: bars where the library `rich` is there and
a person watches, else one line a stage."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager
from importlib.util import find_spec
from typing import Protocol, TextIO

Report = Callable[[str, int, int], None]


class _Bars(Protocol):
    """What is used of `rich.progress.Progress`."""

    def add_task(self, description: str, *, total: int) -> int: ...

    def update(self, task: int, *, completed: int, total: int) -> None: ...


class _RichProgress(Protocol):
    """What is used of the module `rich.progress`."""

    def Progress(self, *, console: object, transient: bool) -> AbstractContextManager[_Bars]: ...


class _RichConsole(Protocol):
    """What is used of the module `rich.console`."""

    def Console(self, *, file: TextIO) -> object: ...


def has_rich() -> bool:
    return find_spec("rich") is not None


@contextmanager
def reporting(to: TextIO, *, bars: bool) -> Generator[Report]:
    """A function that takes (stage, done, total) while the block runs. Bars leave nothing behind;
    lines stay."""
    if not bars:
        yield _Lines(to)
        return
    progress: _RichProgress = importlib.import_module("rich.progress")  # pyright: ignore[reportAssignmentType] - a module, by its protocol
    console: _RichConsole = importlib.import_module("rich.console")  # pyright: ignore[reportAssignmentType] - a module, by its protocol
    with progress.Progress(console=console.Console(file=to), transient=True) as shown:
        yield _Tasks(shown)


class _Lines:
    """One line when a stage is first heard of."""

    def __init__(self, to: TextIO) -> None:
        self._to = to
        self._heard: set[str] = set()

    def __call__(self, stage: str, done: int, total: int) -> None:
        if stage not in self._heard:
            self._heard.add(stage)
            print(f"{stage} ...", file=self._to, flush=True)


class _Tasks:
    """One bar a stage."""

    def __init__(self, bars: _Bars) -> None:
        self._bars = bars
        self._tasks: dict[str, int] = {}

    def __call__(self, stage: str, done: int, total: int) -> None:
        if stage not in self._tasks:
            for before in self._tasks.values():
                self._bars.update(before, completed=1, total=1)
            self._tasks[stage] = self._bars.add_task(stage, total=total)
        self._bars.update(self._tasks[stage], completed=done, total=total)
