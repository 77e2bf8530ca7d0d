"""Draws a record of `benchmarks.serving`: python -m benchmarks.serving_plot FILE.json"""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path

import matplotlib
from matplotlib import pyplot


def plot(record: Path) -> Path:
    """Tokens a second and the first token's time over the requests at once, and the first token
    after a prefix that is new and one that is shared; the picture lies beside the record."""
    matplotlib.use("Agg")
    rows = json.loads(record.read_text())["rows"]
    figure, (rate, first, prefix) = pyplot.subplots(1, 3, figsize=(12, 4))
    counts = [int(n) for n in rows["load"]]
    for axis, key in ((rate, "new tokens/s"), (first, "first token, s")):
        axis.plot(counts, [row[key] for row in rows["load"].values()], marker="o")
        axis.set_xscale("log", base=2)
        axis.set_xticks(counts, [str(n) for n in counts])
        axis.set_xlabel("requests at once")
        axis.set_ylabel(key)
        axis.set_ylim(bottom=0)
    named = {k.split()[4]: v for k, v in rows.items() if k.startswith("first token after")}
    prefix.bar(list(named), [statistics.median(v) for v in named.values()])
    prefix.set_yscale("log")
    prefix.set_ylabel("first token after 2,000 tokens of prefix, s")
    figure.suptitle(f"SmolLM2 served on {rows['machine'][:60]}")
    figure.tight_layout()
    figure.savefig(record.with_suffix(".png"), dpi=110)
    return record.with_suffix(".png")


def main(argv: Sequence[str]) -> int:
    for name in argv:
        print(plot(Path(name)))
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
