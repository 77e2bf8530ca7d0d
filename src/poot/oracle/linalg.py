"""Matrix products."""

from __future__ import annotations

import numpy as np

from poot.oracle.rows import At, row


@row("matmul")
def matmul(at: At, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The products and sums are held in f32 (f64 in f64 mode), in BLAS's order."""
    return at.held(np.matmul(at.wide(a), at.wide(b)))
