"""Operands by their names, whatever their order."""

from poot.ir.text import parse
from poot.planner.operands import keys_of, operands_of
from tests.support.attention_forms import Form, form_text


def named(**rest: object) -> tuple[dict[str, tuple[int, ...]], int]:
    form = Form(2, 4, 2, 1, 24, 8, 8, "f32", **rest)  # type: ignore[arg-type]
    (eqn,) = (e for e in parse(form_text(form)[0]).eqns if e.op == "attention")
    at = operands_of(eqn)
    return {name: var.type.shape for name, var in at.items()}, keys_of(at)


def test_dense_keys_are_counted_by_k():
    at, keys = named(live=True, sink=True)
    assert set(at) == {"q", "k", "v", "len", "sink"}
    assert (at["k"], keys) == ((2, 2, 24, 8), 24)


def test_keys_of_a_pool_are_counted_by_its_map():
    at, keys = named(paged=True)
    assert (at["read"], keys) == ((2, 24), 24)
    assert at["k"][0] > 24
