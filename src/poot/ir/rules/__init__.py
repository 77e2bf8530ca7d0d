"""The rows of the op table, by room. Importing this package fills the table."""

from poot.ir.rules import elementwise, fused, index, linalg, reduction, selected, shape

__all__ = ["elementwise", "fused", "index", "linalg", "reduction", "selected", "shape"]
