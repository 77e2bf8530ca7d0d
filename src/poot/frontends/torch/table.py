"""Every ATen op that `from_torch` knows, by its name without `aten.`."""

from __future__ import annotations

from poot.frontends.foreign import Row
from poot.frontends.torch.rows.conv import CONV
from poot.frontends.torch.rows.elementwise import ELEMENTWISE
from poot.frontends.torch.rows.index import INDEX
from poot.frontends.torch.rows.nn import NN
from poot.frontends.torch.rows.reduce import REDUCE
from poot.frontends.torch.rows.shape import SHAPE

_ROOMS = (ELEMENTWISE, SHAPE, INDEX, REDUCE, NN, CONV)
ATEN: dict[str, Row] = {f"aten.{n}": row for room in _ROOMS for n, row in room.items()}
