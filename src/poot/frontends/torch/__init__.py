"""PyTorch programs. `program.py` has `from_torch`, `read.py` reads an exported program, `rows/` has
a row for each ATen op. Nothing here imports torch before a program of it is at hand, but
`backend.py`, which `poot.torch` imports."""
