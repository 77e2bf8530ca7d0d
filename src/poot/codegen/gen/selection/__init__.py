"""Generators of block-selected attention: the best blocks of a row, and attention over lists."""
