"""Any use of what isn't there fails."""

from __future__ import annotations

import numpy as np
import pytest

from poot.codegen.kir.sim.poison import Poison
from poot.errors import SimulationError

pytestmark = pytest.mark.quick


@pytest.mark.parametrize(
    "use",
    [
        lambda p: np.add(p, np.float32(1)),
        lambda p: np.where(np.array([True]), p, 0),
        lambda p: np.broadcast_to(p, (3,)),
        lambda p: np.asarray(p),
        lambda p: p[0],
        lambda p: p.astype(np.float32),
        lambda p: p.ndim,
        lambda p: bool(p),
        lambda p: int(p),
    ],
)
def test_every_use_fails_and_says_of_what(use):
    with pytest.raises(SimulationError, match="in-flight: acc is not there") as found:
        use(Poison("in-flight", "acc is not there"))
    assert found.value.kind == "in-flight"


def test_its_kind_can_be_asked():
    assert Poison("uninitialised", "m").kind == "uninitialised"
