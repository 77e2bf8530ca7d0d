"""The attention rewrite. `match.py` is the pass; each other file knows one part of the chain."""
