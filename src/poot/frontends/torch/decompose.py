# pyright: basic
"""Exported programs in core ATen, but for ops that are kept whole because a row says them better:
attention is one call, and so hides nothing of its meaning behind a select of rows."""

from __future__ import annotations

import importlib
import warnings
from typing import Any

from poot.extras import library

# Composite ops that have a row, or that torch alone does as it says: taken apart to index_put, an
# index below 0 would count from the end, which index_copy and index_add refuse.
KEPT = (
    "scaled_dot_product_attention.default", "rms_norm.default", "index_copy.default",
    "index_copy_.default", "index_add.default", "index_add_.default",
)  # fmt: skip


def decomposed(program: Any) -> Any:
    """The program with every composite op taken apart that isn't kept; what is no exported program
    comes back as it is."""
    if not hasattr(program, "run_decompositions"):
        return program
    export = library("torch.export", "from_torch")
    table = export.default_decompositions()
    for name in KEPT:
        table.pop(_overload(name), None)
    with warnings.catch_warnings():
        # torch 2.13 warns of itself where it copies an exported program.
        warnings.filterwarnings("ignore", ".*LeafSpec", FutureWarning)
        return program.run_decompositions(table)


def decompositions() -> dict[Any, Any]:
    """How the graphs of torch.compile are taken apart, as a table of torch's."""
    table = dict(importlib.import_module("torch._decomp").core_aten_decompositions())
    for name in KEPT:
        table.pop(_overload(name), None)
    return table


def _overload(name: str) -> Any:
    packet, overload = name.split(".")
    aten = importlib.import_module("torch").ops.aten
    return getattr(getattr(aten, packet), overload)
