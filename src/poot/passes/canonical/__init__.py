"""One spelling for what can be spelled in many ways. `canonicalize.py` is the pass."""
