"""Model families, each a plain function over `poot.ops`."""
