"""The graph's text: exact both ways, and what its errors say."""

from __future__ import annotations

import math
import os
import subprocess
import sys
import time
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings

from poot.errors import ParseError, VerifyError
from poot.ir.graph import Const, Graph, Slot, State, TensorType, Var, Weight
from poot.ir.text import parse, parse_value, show, show_value
from tests.support.graphs import FLOATS, graphs, random_graph

EVERY_FORM = """\
in v0: f32[2,3]
weight v1: f32[3,4] "w.layers.0.q"
state v2: f32[8,4] "kv.0" -> v9
slot v3: i32[] "pos" kind=pos range=(0, 64)
constant v4: f32[2] "table" 0x0000803f00000040
v5: f32[2,1] = reduce(v0) axis=(1,) keepdim=True kind=sum
v6: f32[2,1], v7: i32[2,1] = topk(v5) k=1
v8: f32[2,1] = region(v5) anchor=none body={
  weight v0: f32[2,1] "x"
  v1: f32[2,1] = region(v0) anchor=none body={
    in v0: f32[2,1]
    v1: f32[2,1] = neg(v0)
    out v1
  } updates=()
  out v1
} updates=((0, 0),)
v9: f32[8,4] = mul(v2, v2)
v10: f32[] = const() dtype=f32 shape=() value=-inf
v11: i32[], v12: bool[] = index_guard(v3) hi=8 lo=0
validate v12
out v6, v7, v8
"""


def test_every_form_comes_back_as_it_was_written():
    graph = parse(EVERY_FORM)
    assert show(graph) == EVERY_FORM
    assert parse(show(graph)) == graph


def test_the_forms_mean_what_they_say():
    graph = parse(EVERY_FORM)
    by_name = {i.name: i.storage for i in graph.inputs}
    assert by_name == {
        "v0": Slot(),
        "w.layers.0.q": Weight(),
        "kv.0": State(),
        "pos": Slot("pos", (0, 64)),
        "table": Const(bytes.fromhex("0000803f00000040")),
    }
    kv = TensorType("f32", (8, 4))
    assert graph.states == ((Var(2, kv), Var(9, kv)),)
    assert graph.validations == (Var(12, TensorType("bool", ())),)


@given(graphs(dtypes=FLOATS))
@settings(max_examples=100, deadline=None)
def test_random_graphs_come_back_whole(graph: Graph):
    text = show(graph)
    assert parse(text) == graph
    assert show(parse(text)) == text


def test_indentation_blank_lines_and_comments_have_no_meaning():
    graph = parse("""

        in  v0: f32[2]   # the operand
            # nothing here
        v1: f32[2] =  neg( v0 )

        out v1""")
    assert show(graph) == "in v0: f32[2]\nv1: f32[2] = neg(v0)\nout v1\n"


def test_attribute_order_in_the_text_does_not_matter():
    a = parse("in v0: f32[2]\nv1: f32[] = reduce(v0) kind=sum axis=(0,) keepdim=False\nout v1")
    b = parse("in v0: f32[2]\nv1: f32[] = reduce(v0) axis=(0,) keepdim=False kind=sum\nout v1")
    assert a == b


@pytest.mark.parametrize(
    "value",
    [
        *(0, -7, 2**31, 0.1, -0.0, 1e-45, 1e30, math.inf, -math.inf, True, False, None),
        *("sum", "two words", "True", "nan", "", 'quo"te\\', "line\nend", "ünï"),
        *((), (1,), (1, (2.5, ("a", None)), ())),
    ],
)
def test_an_attribute_value_comes_back_as_itself(value: object):
    back = parse_value(show_value(value))
    assert back == value
    assert type(back) is type(value)
    assert show_value(back) == show_value(value)


def test_nan_comes_back_equal():
    graph = parse("v0: f32[] = const() dtype=f32 shape=() value=nan\nout v0")
    assert "value=nan" in show(graph)
    assert parse(show(graph)) == graph


def test_an_attribute_without_a_text_is_refused():
    with pytest.raises(VerifyError, match="has a text"):
        show_value({1, 2})


def test_state_pairs_out_of_the_inputs_order_have_a_line_of_their_own():
    text = """\
state v0: f32[2] "a"
state v1: f32[2] "b"
v2: f32[2] = neg(v0)
states v1 -> v2, v0 -> v1
out
"""
    graph = parse(text)
    assert [(str(a), str(b)) for a, b in graph.states] == [("v1", "v2"), ("v0", "v1")]
    assert show(graph) == text


def test_an_empty_constant_comes_back():
    text = 'constant v0: f32[0] "none" 0x\nout v0\n'
    assert show(parse(text)) == text


def test_locations_are_shown_on_request_and_read_back():
    graph = parse("in v0: f32[2]\nv1: f32[2] = neg(v0)  # model.py:41\nout v1")
    assert "#" not in show(graph)
    assert "v1: f32[2] = neg(v0)  # model.py:41\n" in show(graph, loc=True)
    assert [e.loc for e in parse(show(graph, loc=True)).eqns] == ["model.py:41"]


def test_str_of_a_graph_is_its_text():
    assert str(parse(EVERY_FORM)) == EVERY_FORM


V0 = "in v0: f32[2]\n"


@pytest.mark.parametrize(
    "text, message",
    [
        ("in v0 f32[2]", "line 1: expected ':', found f32: in v0 f32"),
        ("in v0: f33[2]", r"line 1: expected a dtype \(f32, .*\), found f33"),
        ("in v0: f32[-2]", "expected an extent of 0 or more, found -2"),
        (V0 + "\nv1: f32[3] = neg(v0)\nout", r"line 3: v1 is f32\[2\] by the rule of neg"),
        (V0 + "v1: f32[2] = neg(v3)\nout", "line 2: expected a value bound above, found v3"),
        (V0 + "v0: f32[2] = neg(v0)\nout", "line 2: v0 is bound already, in line 1"),
        (V0 + "out v1", "line 2: expected a value bound above, found v1: out v1"),
        (V0 + 'weight v1: f32[2] "v0"\nout', "line 2: there is an input 'v0' already"),
        (V0 + "v1: f32[2] = neg(v0, v0)\nout", "line 2: neg needs 1 operands: got 2"),
        (V0 + "v1: f32[2] = nag(v0)\nout", "line 2: there is no op 'nag'"),
        (V0 + "v1: f32[2], v2: f32[2] = neg(v0)\nout", "line 2: neg has 1 outs, not 2"),
        (V0 + "v1: f32[2] = neg(v0) by=1\nout", "line 2: neg has no attribute by"),
        (V0 + "v1: f32[2] = neg(v0) a=1 a=1\nout", "expected each attribute once, found a"),
        (V0 + "v1: f32[2] = reshape(v0)\nout", "line 2: reshape needs the attribute shape"),
        (
            V0 + "v1: f32[2] = reshape(v0) shape=2\nout",
            r"needs shape as tuple\[int, ...\]: shape=2",
        ),
        (
            V0 + "v1: f32[2] = reshape(v0) shape=\nout",
            "expected a value, found the end of the line",
        ),
        (V0 + "nonsense", "expected in, weight, state, slot, constant, v<n>, validate or out"),
        (V0, "line 2: expected a statement, found the end of the text"),
        ("", "line 1: expected a statement, found the end of the text"),
        (V0 + "out v0\nout v0", "line 3: expected nothing after `out`, found out"),
        (V0 + "out v0 v0", "line 2: expected the end of the line, found v0"),
        ("in v0: f32[2] $", r"line 1: expected a word, number or mark at '\$'"),
        ('weight v0: f32[2] "a\\q"\nout', "expected a string with JSON's escapes"),
        ('constant v0: f32[2] "c" 0x00\nout', r"expected 8 bytes for f32\[2\]"),
        ('slot v0: i32[] "c" range=(1,)\nout', "expected kind=<word> or range="),
        (f"in v0: f32[{'9' * 5000}]", "line 1: expected a word, number or mark at '9'"),
        (f"in v{'9' * 30}: f32[]", "expected a value v<n>, found v999"),
        ("v0: f32[] = const() value=" + "(" * 5000, "a tuple more than 32 deep"),
    ],
)
def test_a_wrong_text_is_refused_with_its_line_and_what_was_expected(text: str, message: str):
    with pytest.raises(ParseError, match=message) as caught:
        parse(text)
    assert len(str(caught.value)) < 400


def test_graphs_nested_without_end_are_refused():
    text = "in v0: f32[2]\nv1: f32[2] = region(v0) anchor=none body={\n" * 5000
    with pytest.raises(ParseError, match="a graph more than 32 deep"):
        parse(text)


def test_a_chain_of_20000_eqns_is_read_and_shown_within_seconds():
    n = 20_000
    lines = [f"v{i + 1}: f32[4] = neg(v{i})\n" for i in range(n)]
    text = "in v0: f32[4]\n" + "".join(lines) + f"out v{n}\n"
    start = time.perf_counter()
    assert show(parse(text)) == text
    assert time.perf_counter() - start < 10


def test_the_same_program_gives_the_same_bytes_whatever_the_hash_seed():
    script = (
        "from random import Random; from tests.support.graphs import random_graph;"
        "from poot.ir.text import show; print(show(random_graph(Random(5), eqns=40)))"
    )
    root = Path(__file__).parents[2]
    seen: set[str] = set()
    for seed in ("0", "1"):
        path = os.pathsep.join((str(root / "src"), str(root)))
        env = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": path}
        got = subprocess.run(
            [sys.executable, "-c", script], env=env, capture_output=True, text=True, check=True
        )
        seen.add(got.stdout)
    assert seen == {show(random_graph(Random(5), eqns=40)) + "\n"}
