"""The decode table: what a row's times come to, as text and as a plot."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from benchmarks.decode_rows import Row

COLUMNS = ("live", "live overlap", "fixed", "paged", "paged overlap")
POOT, OVERLAP = "poot ", " overlap"


@dataclass(frozen=True, slots=True)
class Line:
    """One row: microseconds of poot's planned kernels by form, of the peers, of other numbers of
    the schedule; bytes a second of the form that the goal speaks of, and its ratio to the best
    peer. `failed` says why there are none."""

    row: str
    failed: str
    forms: dict[str, float]
    peers: dict[str, float]
    others: dict[str, float]
    rate: float
    ratio: float | None
    goal: float
    is_met: bool

    @staticmethod
    def of(row: Row, report: Mapping[str, object]) -> Line:
        """The line of a row's report."""
        us = report.get("us")
        if not isinstance(us, dict):
            said = report.get("failed") or report.get("checks") or "not run"
            return Line(row.name, str(said)[:300], {}, {}, {}, 0.0, None, row.goal, False)
        found = {str(name): _median(rounds) for name, rounds in us.items()}
        forms: dict[str, float] = {}
        for decode in row.decodes():
            kind = "paged" if decode.pool else "live" if decode.is_live else "fixed"
            for tail in ("", OVERLAP):
                name = f"{POOT}{decode.name}{tail}"
                if decode.numbers is None and not decode.order and name in found:
                    forms[kind + tail] = found.pop(name)
        peers = {k: v for k, v in found.items() if not k.startswith(POOT)}
        others = {k.removeprefix(POOT): v for k, v in found.items() if k.startswith(POOT)}
        mine = forms.get("live") or forms.get("paged")
        if mine is None:
            said = str(report.get("checks"))[:300]
            return Line(row.name, said, forms, peers, others, 0.0, None, row.goal, False)
        rate = row.nbytes / mine / 1e6
        ratio = mine / min(peers.values()) if peers else None
        is_met = rate >= row.goal if row.goal_is_rate else ratio is not None and ratio <= row.goal
        return Line(row.name, "", forms, peers, others, rate, ratio, row.goal, is_met)


def _median(rounds: object) -> float:
    assert isinstance(rounds, list), rounds
    return statistics.median(float(r[0]) for r in rounds)


def _number(value: float | None, digits: int = 1) -> str:
    return "-" if value is None else f"{value:.{digits}f}"


def table(lines: list[Line]) -> str:
    """Microseconds; TB/s and ratio are of the live form, or the paged where there is no other."""
    heads = "".join(f"{c.replace('overlap', '+'):>9}" for c in COLUMNS)
    out = [f"{'row':<20}{heads}{'TB/s':>7}{'ratio':>7}{'goal':>6}    peers"]
    for line in lines:
        if line.failed:
            out.append(f"{line.row:<20}{line.failed}")
            continue
        cells = "".join(f"{_number(line.forms.get(c)):>9}" for c in COLUMNS)
        tail = f"{line.rate:>7.2f}{_number(line.ratio, 3):>7}{line.goal:>6.2f}"
        peers = ", ".join(f"{k} {v:.1f}" for k, v in line.peers.items())
        out.append(f"{line.row:<20}{cells}{tail} {'ok' if line.is_met else '  '} {peers}")
        out += [f"    {name} {us:.1f}" for name, us in line.others.items()]
    return "\n".join(out)


def plot(lines: list[Line], path: Path) -> None:
    """Ratios to the best peer, with the goals."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    shown = [line for line in lines if line.ratio is not None]
    figure, axes = pyplot.subplots(figsize=(9, 0.45 * len(shown) + 1.5))
    axes.barh([x.row for x in shown], [x.ratio or 0.0 for x in shown], color="#3a6ea5")
    for n, line in enumerate(shown):
        axes.plot([line.goal, line.goal], [n - 0.4, n + 0.4], color="#c0392b")
    axes.axvline(1.0, color="black", linewidth=0.8)
    axes.invert_yaxis()
    axes.set_xlabel("time / the best peer's in the same run (red: goal)")
    figure.tight_layout()
    figure.savefig(path, dpi=120)
