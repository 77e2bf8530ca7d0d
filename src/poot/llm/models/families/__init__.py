"""Readers of each family's config.json, and the table of them."""
