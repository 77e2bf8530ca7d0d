"""The table's own checks: operands counted, attributes known, present and of their kind."""

from __future__ import annotations

import pytest

from poot.errors import TypeRuleError
from poot.ir.graph import TensorType
from poot.ir.ops import OPS, out_types

F2 = TensorType("f32", (2,))


@pytest.mark.parametrize(
    "name, ins, attrs, message",
    [
        ("plus", (F2,), {}, "there is no op 'plus'"),
        ("neg", (F2, F2), {}, "neg needs 1 operands: got 2"),
        ("neg", (F2,), {"by": 1}, "neg has no attribute by"),
        ("reshape", (F2,), {}, r"reshape needs the attribute shape: tuple\[int, ...\]"),
        (
            "reshape",
            (F2,),
            {"shape": (1, 2.0)},
            r"needs shape as tuple\[int, ...\]: shape=\(1, 2.0",
        ),
        ("reshape", (F2,), {"shape": (True, 2)}, "needs shape as"),
        ("topk", (F2,), {"k": True}, "topk needs k as int: k=True"),
        ("reduce", (F2,), {"kind": 1, "axis": (0,), "keepdim": False}, "reduce needs kind as str"),
        ("reduce", (F2,), {"kind": "sum", "axis": (0,), "keepdim": 0}, "needs keepdim as bool: "),
        ("transpose", (F2,), {"perm": (1,)}, r"transpose needs each axis of x once.*x=f32\[2\]"),
    ],
)
def test_a_bad_eqn_is_refused_by_name(
    name: str, ins: tuple[TensorType, ...], attrs: dict[str, object], message: str
):
    with pytest.raises(TypeRuleError, match=message) as caught:
        out_types(name, ins, tuple(attrs.items()), "model.py:7")
    assert caught.value.loc == "model.py:7"


def test_every_row_says_what_it_means():
    assert [name for name, row in OPS.items() if not row.doc] == []
