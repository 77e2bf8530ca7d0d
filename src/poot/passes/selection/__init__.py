"""Selections of blocks, and attention over them, formed from primitives."""
