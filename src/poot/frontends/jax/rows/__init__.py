"""One row for each JAX primitive: it as a composition of `poot.ops`. `table.py` has them all."""
