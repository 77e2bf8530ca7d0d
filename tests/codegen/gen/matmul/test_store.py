"""From sums to outputs: own elements alone, and launches for the rest."""

from __future__ import annotations

import pytest

from poot.codegen.gen.index import Index
from poot.codegen.gen.job import open_job
from poot.codegen.gen.lower import lower
from poot.codegen.gen.matmul.store import product_leaf
from poot.errors import CapabilityError
from tests.support.launch import LAVAPIPE, check_step, request_of
from tests.support.products import BODIES


def test_a_product_answers_for_its_own_element_alone():
    job = open_job(request_of(BODIES["residual"][0], "matmul"), LAVAPIPE, "leaf", 1)
    own = (Index((), 1), Index((), 2))
    leaf = product_leaf(job.k.lit(3.0), own, "model.py:7")
    assert leaf(own).literal == 3.0
    with pytest.raises(CapabilityError, match=r"model\.py:7"):
        leaf((Index((), 2), Index((), 1)))


def test_outputs_that_no_product_reaches_have_launches_of_their_own():
    text = """in v0: f32[4,8]
              in v1: f32[8,6]
              v2: f32[4,1] = reduce(v0) axis=(1,) keepdim=True kind=max
              v3: f32[4,8] = sub(v0, v2)
              v4: f32[8,6] = neg(v1)
              v5: f32[4,6] = matmul(v3, v4)
              out v4, v5, v3, v2"""
    request = check_step(text, "matmul", within=2e-5)
    names = [c.kernel.name for c in lower(request, LAVAPIPE).calls]
    assert names == ["gemv", "elementwise", "reduce"]
