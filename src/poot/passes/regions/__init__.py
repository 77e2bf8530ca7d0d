"""Regions: which eqns share a launch. `form.py` is the pass; the other files are its steps."""
