"""Draws what `gemv` and `model_decode` measured: products beside cuBLAS, models beside their bound.

python -m benchmarks.model_plot GEMV.json MODEL.json OUT.png
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot as plt


def main() -> None:
    gemv, model = (json.loads(Path(p).read_text()) for p in sys.argv[1:3])
    figure, (left, right) = plt.subplots(1, 2, figsize=(13, 5), width_ratios=(3, 1))
    names = list(gemv["rows"])
    for n, (tag, label) in enumerate((("chosen", "poot, norm and epilogue with it"),
                                      ("cublas", "cuBLAS, the product alone"))):  # fmt: skip
        values = [gemv["rows"][name]["tb_s"][tag] for name in names]
        left.bar([i + 0.4 * n for i in range(len(names))], values, 0.4, label=label)
    left.axhline(gemv["ceiling_tb_s"], color="black", lw=0.8, label="a sum over 2 GB")
    left.set_xticks([i + 0.2 for i in range(len(names))], names, rotation=60, ha="right", size=8)
    left.set_ylabel("TB/s of weights, batch 1")
    left.legend()
    shapes = [name for name, row in model.items() if isinstance(row, dict) and "device us" in row]
    for n, (key, label) in enumerate((("greedy tok/s", "token to the host and back"),
                                      ("device tok/s", "replays alone"),
                                      ("bound tok/s", "weights at 4.38 TB/s"))):  # fmt: skip
        share = [model[name][key] / model[name]["bound tok/s"] for name in shapes]
        bars = right.bar([i + 0.27 * n for i in range(len(shapes))], share, 0.27, label=label)
        right.bar_label(bars, [f"{model[name][key]:.0f}" for name in shapes], size=7)
    right.set_xticks([i + 0.27 for i in range(len(shapes))], shapes, size=8)
    right.set_ylabel("tokens a second, share of the bound")
    right.legend(loc="lower left")
    figure.suptitle(gemv["gpu"].split(",")[0])
    figure.tight_layout()
    figure.savefig(sys.argv[3], dpi=110)


if __name__ == "__main__":
    main()
