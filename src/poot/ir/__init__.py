"""The graph's language: types, eqns, the op table, text, verifier, walks and ranges."""

from poot.ir import rules as _rules  # noqa: F401 - fills the op table
