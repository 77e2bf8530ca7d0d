"""Steps for the schedule that streams: a card with few compute units, and bodies with rotations."""

from __future__ import annotations

from dataclasses import replace

from poot.limits import PROFILES, DeviceLimits

CARD = replace(PROFILES["h200"], compute_units=5)


def card(units: int) -> DeviceLimits:
    return replace(PROFILES["h200"], compute_units=units)


def turned_text(rows: int, interleaved: bool, dtype: str = "bf16") -> str:
    """Queries and keys of heads 16 wide, rotated, the keys written to a cache: inputs 1 and 2 are
    the weights; output 1 updates input 5."""
    return f"""in v0: f32[{rows},64]
               in v1: {dtype}[96,64]
               in v2: {dtype}[32,64]
               in v3: f32[{rows},8]
               in v4: f32[{rows},8]
               in v5: f32[1,2,9,16]
               in v6: i32[]
               v7: {dtype}[64,96] = transpose(v1) perm=(1, 0)
               v8: {dtype}[64,32] = transpose(v2) perm=(1, 0)
               v9: f32[64,96] = cast(v7) dtype=f32
               v10: f32[64,32] = cast(v8) dtype=f32
               v11: f32[{rows},96] = matmul(v0, v9)
               v12: f32[{rows},32] = matmul(v0, v10)
               v13: f32[1,{rows},6,16] = reshape(v11) shape=(1, {rows}, 6, 16)
               v14: f32[1,6,{rows},16] = transpose(v13) perm=(0, 2, 1, 3)
               v15: f32[1,{rows},2,16] = reshape(v12) shape=(1, {rows}, 2, 16)
               v16: f32[1,2,{rows},16] = transpose(v15) perm=(0, 2, 1, 3)
               v17: f32[1,6,{rows},16] = rope(v14, v3, v4) interleaved={interleaved}
               v18: f32[1,2,{rows},16] = rope(v16, v3, v4) interleaved={interleaved}
               v19: f32[1,2,9,16] = dynamic_update_slice(v5, v18, v6) axis=2
               out v17, v19"""


def norm_text(rows: int, depth: int, cols: int) -> str:
    """A mean and a sum of squares before a product, each of the result of the one before."""
    return f"""in v0: f32[{rows},{depth}]
               in v1: bf16[{cols},{depth}]
               v2: f32[{rows},1] = reduce(v0) axis=(1,) keepdim=True kind=max
               v3: f32[{rows},{depth}] = sub(v0, v2)
               v4: f32[{rows},{depth}] = mul(v3, v3)
               v5: f32[{rows},1] = reduce(v4) axis=(1,) keepdim=True kind=sum
               v6: f32[{rows},1] = rsqrt(v5)
               v7: f32[{rows},{depth}] = mul(v3, v6)
               v8: bf16[{depth},{cols}] = transpose(v1) perm=(1, 0)
               v9: f32[{depth},{cols}] = cast(v8) dtype=f32
               v10: f32[{rows},{cols}] = matmul(v7, v9)
               out v10"""
