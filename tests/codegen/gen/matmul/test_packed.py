"""Which inputs a kernel binds, and where a packed Weight's elements are."""

from __future__ import annotations

from dataclasses import replace

from poot.codegen.gen.lower import lower
from poot.codegen.gen.matmul.packed import needed
from poot.codegen.gen.matmul.parts import products_of
from poot.limits import profile
from tests.support.launch import request_of
from tests.support.products import BODIES, matmul_text

SMALL = replace(profile("cpu-avx2"), vector=4, subgroup=4)


def test_values_before_the_products_are_not_needed_after_them():
    body, updates = BODIES["residual"]
    request = request_of(body, "matmul", updates, limits=SMALL)
    products = products_of(request)
    after = needed(request, [], [0, 1], products)
    inputs = [i.var.id for i in request.body.inputs]
    assert inputs[0] not in after
    assert inputs[1] not in after
    assert inputs[2] in after
    left = needed(request, [products.segments[0].products[0].ins[0]], [], products)
    assert inputs[0] in left
    assert inputs[1] not in left


def test_a_packed_weight_has_the_elements_of_whole_panels():
    request = request_of(matmul_text(2, 6, 11, True), "matmul", limits=SMALL, bound=(1,))
    (call,) = lower(request, SMALL).calls
    sizes = {arg: p.elems for p, arg in zip(call.kernel.params, call.args, strict=True)}
    assert sizes["in", 1] == 2 * 8 * 6
