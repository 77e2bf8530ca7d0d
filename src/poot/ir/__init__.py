"""The graph's language: types, eqns, the op table, text, verifier, walks and ranges."""

from poot.ir import rules

__all__ = ["rules"]  # imported here so that the op table is full wherever poot.ir is in use
