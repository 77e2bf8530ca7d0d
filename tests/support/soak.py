"""Thousands of requests in waves, with cancels, reloads of adapters and failing steps between."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from poot.errors import LaunchError
from poot.llm.adapters import Adapter
from poot.llm.engine import Engine
from poot.llm.request import Handle, Request, Result
from poot.session import Session


@dataclass(frozen=True, slots=True)
class Asked:
    """A request, and the number of the adapter that it was submitted with; 0 for none."""

    handle: Handle
    adapter: int


class Soak:
    """`make` gives the adapter of a number; `fail` lets the engine's step after so many fail."""

    def __init__(
        self,
        engine: Engine,
        make: Callable[[int], Adapter],
        fail: Callable[[int], None],
        seed: int,
        *,
        adapters: int,
    ) -> None:
        self.rng = np.random.default_rng(seed)
        self.engine = engine
        self._make = make
        self._fail = fail
        self._adapters = adapters
        self._loaded: dict[str, int] = {}
        self.asked: list[Asked] = []

    def wave(self, prompts: list[tuple[int, ...]]) -> None:
        """Submits them while the engine steps, until all have ended."""
        for prompt in prompts:
            name = str(self.rng.choice(["", "", "a", "b"])) or None
            if name is not None and (name not in self._loaded or self.rng.random() < 0.05):
                self._load(name)
            number = 0 if name is None else self._loaded[name]
            new = int(self.rng.integers(1, 33))
            handle = self.engine.submit(Request(prompt, new, adapter=name))
            self.asked.append(Asked(handle, number))
            if self.rng.random() < 0.1:
                self.asked[int(self.rng.integers(len(self.asked)))].handle.cancel()
            if self.rng.random() < 0.02:
                self._fail(int(self.rng.integers(0, 4)))
            while self.engine.metrics().waiting > 12:
                self.engine.step()
        self.engine.run()

    def _load(self, name: str) -> None:
        """A new load of an adapter, once a place for it is free."""
        number = int(self.rng.integers(1, self._adapters + 1))
        for _ in range(500):
            if self.engine.adapters.free_places():
                self.engine.load_adapter(name, self._make(number))
                self._loaded[name] = number
                return
            self.engine.step()
        raise AssertionError("no place for an adapter becomes free")

    def ended(self) -> list[tuple[Request, int, Result]]:
        """What has ended since the last call, each with a reason that fits its length."""
        rows = [(a.handle.request, a.adapter, a.handle.result(0)) for a in self.asked]
        for request, _, result in rows:
            is_whole = len(result.tokens) == request.max_tokens
            assert result.finish.reason == ("length" if is_whole else "cancelled")
        self.asked = []
        return rows


class FailingSession:
    """A session whose steps fail when asked, after they have written their rows, and with a third
    of them spoilt besides: what a driver may leave that stops part-way."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._in: int | None = None
        self.failed = 0

    @property
    def state_inputs(self):
        return self._session.state_inputs

    @property
    def state(self):
        return self._session.state

    @property
    def binds(self) -> int:
        return self._session.binds

    def rebind(self, weights: Mapping[str, object]) -> None:
        self._session.rebind(weights)

    def fail(self, after: int) -> None:
        """The step after so many more fails."""
        self._in = after

    def step(self, entry: str = "main", /, **slots: object) -> object:
        out = self._session.step(entry, **slots)
        if self._in is None:
            return out
        self._in -= 1
        if self._in >= 0:
            return out
        self._in = None
        self.failed += 1
        for name in self.state_inputs:
            if name.startswith("kv.") and self.failed % 3 == 0:
                spoilt = self.state[name]
                spoilt[16::2] = np.nan
                self.state[name] = spoilt
        raise LaunchError("the step stops part-way, as asked")
