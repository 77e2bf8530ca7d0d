"""An attention eqn taken apart."""

from poot.codegen.gen.attention.parts import attention_eqn, parts_of
from poot.ir.text import parse
from tests.support.attention_forms import Form, form_text


def test_extents_and_attributes_are_the_eqns():
    form = Form(2, 6, 3, 5, 40, 24, 16, paged=True, shared=0, softcap=5.0, causal=1, lse=True)
    parts = parts_of(attention_eqn(parse(form_text(form)[0])))
    assert (parts.batch, parts.heads, parts.rows, parts.width) == (2, 6, 5, 24)
    assert (parts.kv_heads, parts.keys, parts.value_width, parts.repeat) == (3, 40, 16, 2)
    assert (parts.softcap, parts.causal, parts.window) == (5.0, 1, None)
    assert parts.lse is not None


def test_a_shared_part_is_counted_in_the_width():
    parts = parts_of(attention_eqn(parse(form_text(Form(width=24, shared=8))[0])))
    assert (parts.width, parts.shared) == (24, 8)
    assert parts.lse is None
