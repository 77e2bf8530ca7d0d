"""One row for each ATen op: the op as a composition of `poot.ops`. `table.py` has them all."""
