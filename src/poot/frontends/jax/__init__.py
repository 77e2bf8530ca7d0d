"""JAX programs. `program.py` has `from_jax`, `read.py` reads a jaxpr, `rows/` has a row for each
primitive. Nothing here imports jax before a program of it is at hand."""
