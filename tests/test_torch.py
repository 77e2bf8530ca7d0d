"""What a torch program imports of poot."""

from __future__ import annotations

from poot import torch as of_poot
from poot.frontends.torch import op, paged


def test_the_module_gives_what_the_front_end_makes():
    assert of_poot.as_custom_op is op.as_custom_op
    assert of_poot.CustomOp is op.CustomOp
    assert of_poot.paged_decode is paged.paged_decode
    assert all(hasattr(of_poot, name) for name in of_poot.__all__)
