"""Matrix products."""

from __future__ import annotations

from poot.errors import need
from poot.ir.dtypes import is_float
from poot.ir.graph import TensorType
from poot.ir.ops import op
from poot.ir.rules.elementwise import broadcast_shapes


@op("matmul", ins=2)
def matmul(a: TensorType, b: TensorType) -> TensorType:
    """[...,m,k] x [...,k,n] -> [...,m,n] in the operands' dtype; batch dims broadcast. The sum over
    k is held in f32."""
    need(a.dtype == b.dtype and is_float(a.dtype), "float operands of one dtype", a=a, b=b)
    need(len(a.shape) >= 2 <= len(b.shape), "two matrices or batches of them", a=a, b=b)
    need(a.shape[-1] == b.shape[-2], "as many columns in a as rows in b", a=a, b=b)
    batch = broadcast_shapes(a.shape[:-2], b.shape[:-2])
    return TensorType(a.dtype, (*batch, a.shape[-2], b.shape[-1]))
