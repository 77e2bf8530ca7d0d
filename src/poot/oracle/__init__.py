"""The numpy meaning of every op, and the definition of right. Depends on `ir` and nothing above."""

from poot.oracle import elementwise, fused, index, linalg, reduction, selected, shape
from poot.oracle.fold import Folded, fold
from poot.oracle.rows import ROWS, At, Row, held_dtype
from poot.oracle.run import Result, run

__all__ = [
    "ROWS",
    "At",
    "Folded",
    "Result",
    "Row",
    "elementwise",
    "fold",
    "fused",
    "held_dtype",
    "index",
    "linalg",
    "reduction",
    "run",
    "selected",
    "shape",
]
