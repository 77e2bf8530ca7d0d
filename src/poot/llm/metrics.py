"""What an engine has done so far, in numbers."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

RECENT = 1024


@dataclass(frozen=True, slots=True)
class Metrics:
    """Counts since the engine began. `padding` is the share of computed token rows that were for
    nobody; `tokens_per_second` counts new tokens over the time spent in steps; `first_token`
    (median, largest) seconds of the last RECENT requests; `pool_use` the share of blocks that
    sequences hold, `cached_blocks` those that only the prefix cache holds."""

    steps: int
    submitted: int
    finished: int
    by_reason: tuple[tuple[str, int], ...]
    new_tokens: int
    prompt_tokens: int
    hit_tokens: int
    rows: int
    padding: float
    preemptions: int
    evictions: int
    failures: int
    running: int
    waiting: int
    pool_use: float
    cached_blocks: int
    tokens_per_second: float
    first_token: tuple[float, float]

    def __str__(self) -> str:
        median, largest = self.first_token
        reasons = ", ".join(f"{n} {reason}" for reason, n in self.by_reason) or "none"
        return (
            f"{self.finished} of {self.submitted} requests ended ({reasons}); "
            f"{self.new_tokens} tokens in {self.steps} steps, {self.tokens_per_second:.1f} a "
            f"second; first token {median:.3f} s (median), {largest:.3f} s (largest); "
            f"{self.hit_tokens} of {self.prompt_tokens} prompt tokens from the prefix cache; "
            f"padding {self.padding:.1%}; pool {self.pool_use:.1%} in use, {self.cached_blocks} "
            f"blocks cached; {self.preemptions} preemptions, {self.evictions} evictions, "
            f"{self.failures} failed steps"
        )


@dataclass(slots=True)
class Tally:
    """The engine's own counters."""

    steps: int = 0
    submitted: int = 0
    reasons: dict[str, int] = field(default_factory=dict[str, int])
    new_tokens: int = 0
    rows: int = 0
    padded: int = 0
    failures: int = 0
    busy: float = 0.0
    first: deque[float] = field(default_factory=lambda: deque[float](maxlen=RECENT))
