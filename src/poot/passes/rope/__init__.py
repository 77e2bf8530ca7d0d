"""The RoPE rewrite. `match.py` is the pass; the other files read its operands."""
