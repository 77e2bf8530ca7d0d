"""How long the launches of a step took."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Profile:
    """Time of each launch: (step, kernel, microseconds); nan where the backend can't tell."""

    entry: str
    launches: tuple[tuple[str, str, float], ...]

    @property
    def us(self) -> float:
        """The sum, in microseconds."""
        return float(sum(t for *_, t in self.launches))

    def __str__(self) -> str:
        by_kernel: dict[str, tuple[int, float]] = {}
        for op, kernel, us in self.launches:
            n, total = by_kernel.get(f"{kernel} ({op})", (0, 0.0))
            by_kernel[f"{kernel} ({op})"] = (n + 1, total + us)
        rows = sorted(by_kernel.items(), key=lambda row: -row[1][1])
        return "\n".join(f"{total:>12.1f} us {n:>5} x {name}" for name, (n, total) in rows)

    def chrome_trace(self) -> dict[str, object]:
        """The launches one after another, as a Chrome trace (write it with json.dump)."""
        at = 0.0
        events: list[dict[str, object]] = []
        for op, kernel, us in self.launches:
            events.append(
                {"name": kernel, "cat": op, "ph": "X", "ts": at, "dur": us, "pid": 0, "tid": 0}
            )
            at += us
        return {"traceEvents": events}
