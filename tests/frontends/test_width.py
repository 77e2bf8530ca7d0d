"""Whether arithmetic of 32 bits is that of 64."""

from __future__ import annotations

import pytest

from poot.frontends.width import wrapping
from poot.ir.graph import Eqn
from poot.ir.ranges import input_interval
from poot.ir.text import parse

SMALL = 'slot v0: i32[4] "a" range=(-1000, 1000)\n'
ANY = 'slot v0: i32[4] "a"\n'
TABLE = 'slot v1: i32[9] "t"\n'


def found(text: str) -> Eqn | None:
    graph = parse(f"{text}\nout")
    known = {i.var.id: input_interval(i) for i in graph.inputs}
    return wrapping(graph.eqns, known, graph.eqns[-1].outs)


@pytest.mark.parametrize(
    "text",
    [
        SMALL + "v2: i32[4] = mul(v0, v0)",
        SMALL + "v2: i32[] = reduce(v0) kind=sum axis=(0,) keepdim=False",
        SMALL + "v2: i32[4] = neg(v0)",
        ANY + "v2: i32[4] = max(v0, v0)",
        ANY + "v2: i32[] = reduce(v0) kind=max axis=(0,) keepdim=False",
        ANY + "v2: f32[4] = cast(v0) dtype=f32\nv3: i32[] = argmax(v2) axis=0",
        'slot v0: f32[4] "a"\nv2: i32[4] = bitcast(v0) dtype=i32\nv3: i32[] = argmax(v2) axis=0',
        ANY + TABLE + "v2: i32[4] = add(v0, v0)\nv3: i32[4] = gather(v1, v2) axis=0",
    ],
)
def test_what_is_proved_or_keeps_its_numbers_wraps_not(text):
    assert found(text) is None


@pytest.mark.parametrize(
    "text, op",
    [
        (ANY + "v2: i32[4] = add(v0, v0)", "add"),
        (ANY + "v2: i32[4] = neg(v0)", "neg"),
        (ANY + "v2: i32[4] = abs(v0)", "abs"),
        (ANY + "v2: i32[] = reduce(v0) kind=sum axis=(0,) keepdim=False", "reduce"),
        (SMALL + "v2: i32[4] = mul(v0, v0)\nv3: i32[4] = mul(v2, v2)", "mul"),
        (SMALL + "v2: i32[4] = shl(v0, v0)", "shl"),
        ('slot v0: f32[4] "a"\nv2: i32[4] = cast(v0) dtype=i32', "cast"),
        ('slot v0: u32[4] "a"\nv2: i32[4] = bitcast(v0) dtype=i32', "bitcast"),
        (ANY + "v2: i32[4] = sub(v0, v0)\nv3: i32[4] = max(v2, v0)", "sub"),
        (ANY + "v2: i32[4] = neg(v0)\nv3: i32[] = argmax(v2) axis=0", "neg"),
    ],
)
def test_a_step_that_may_wrap_is_found_where_the_result_comes_from_it(text, op):
    eqn = found(text)
    assert eqn is not None
    assert eqn.op == op
