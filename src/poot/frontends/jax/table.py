"""Every primitive that `from_jax` knows, by its name."""

from __future__ import annotations

from poot.frontends.foreign import Row
from poot.frontends.jax.rows.elementwise import ELEMENTWISE
from poot.frontends.jax.rows.index import INDEX
from poot.frontends.jax.rows.products import PRODUCTS
from poot.frontends.jax.rows.random import RANDOM
from poot.frontends.jax.rows.reduce import REDUCE
from poot.frontends.jax.rows.shape import SHAPE

PRIMITIVES: dict[str, Row] = {**ELEMENTWISE, **SHAPE, **INDEX, **REDUCE, **PRODUCTS, **RANDOM}
