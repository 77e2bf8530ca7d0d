"""Products with weights in codes, as `ops.dequant_q4_1` and `ops.dequant_q8_0` write them."""

from __future__ import annotations


def q4_text(m: int, k: int, n: int) -> str:
    """x [m, k] times [n, k] in 4-bit codes, a scale and a minimum for 32 of them."""
    return f"""in v0: f32[{m},{k}]
               in v1: u32[{n},{k // 8}]
               in v2: f16[{n},{k // 32}]
               in v3: f16[{n},{k // 32}]
               v4: u32[{n},{k // 8},1] = reshape(v1) shape=({n}, {k // 8}, 1)
               v5: u32[8] = iota() axis=0 dtype=u32 shape=(8,)
               v6: u32[] = const() dtype=u32 shape=() value=4
               v7: u32[8] = mul(v5, v6)
               v8: u32[{n},{k // 8},8] = shr(v4, v7)
               v9: u32[] = const() dtype=u32 shape=() value=15
               v10: u32[{n},{k // 8},8] = and(v8, v9)
               v11: u32[{n},{k // 32},32] = reshape(v10) shape=({n}, {k // 32}, 32)
               v12: f32[{n},{k // 32},32] = cast(v11) dtype=f32
               v13: f16[{n},{k // 32},1] = reshape(v2) shape=({n}, {k // 32}, 1)
               v14: f32[{n},{k // 32},1] = cast(v13) dtype=f32
               v15: f32[{n},{k // 32},32] = mul(v12, v14)
               v16: f16[{n},{k // 32},1] = reshape(v3) shape=({n}, {k // 32}, 1)
               v17: f32[{n},{k // 32},1] = cast(v16) dtype=f32
               v18: f32[{n},{k // 32},32] = add(v15, v17)
               v19: f32[{n},{k}] = reshape(v18) shape=({n}, {k})
               v20: f32[{k},{n}] = transpose(v19) perm=(1, 0)
               v21: f32[{m},{n}] = matmul(v0, v20)
               out v21"""


def q8_text(m: int, k: int, n: int) -> str:
    """x [m, k] times [n, k] in signed bytes, a scale for 32 of them."""
    return f"""in v0: f32[{m},{k}]
               in v1: u32[{n},{k // 4}]
               in v2: f16[{n},{k // 32}]
               v3: i32[{n},{k // 4}] = bitcast(v1) dtype=i32
               v4: i32[{n},{k // 4},1] = reshape(v3) shape=({n}, {k // 4}, 1)
               v5: i32[] = const() dtype=i32 shape=() value=24
               v6: i32[4] = iota() axis=0 dtype=i32 shape=(4,)
               v7: i32[] = const() dtype=i32 shape=() value=8
               v8: i32[4] = mul(v6, v7)
               v9: i32[4] = sub(v5, v8)
               v10: i32[{n},{k // 4},4] = shl(v4, v9)
               v11: i32[{n},{k // 4},4] = shr(v10, v5)
               v12: i32[{n},{k // 32},32] = reshape(v11) shape=({n}, {k // 32}, 32)
               v13: f32[{n},{k // 32},32] = cast(v12) dtype=f32
               v14: f16[{n},{k // 32},1] = reshape(v2) shape=({n}, {k // 32}, 1)
               v15: f32[{n},{k // 32},1] = cast(v14) dtype=f32
               v16: f32[{n},{k // 32},32] = mul(v13, v15)
               v17: f32[{n},{k}] = reshape(v16) shape=({n}, {k})
               v18: f32[{k},{n}] = transpose(v17) perm=(1, 0)
               v19: f32[{m},{n}] = matmul(v0, v18)
               out v19"""
