"""Bodies of matmul regions: each form of prologue, epilogue, batch and update that a region may
hold."""

from __future__ import annotations


def matmul_text(m: int, k: int, n: int, is_linear: bool, dtype: str = "f32") -> str:
    """x [m, k] times w: [k, n], or [n, k] transposed."""
    if not is_linear:
        return f"""in v0: {dtype}[{m},{k}]
                   in v1: {dtype}[{k},{n}]
                   v2: {dtype}[{m},{n}] = matmul(v0, v1)
                   out v2"""
    return f"""in v0: {dtype}[{m},{k}]
               in v1: {dtype}[{n},{k}]
               v2: {dtype}[{k},{n}] = transpose(v1) perm=(1, 0)
               v3: {dtype}[{m},{n}] = matmul(v0, v2)
               out v3"""


Body = tuple[str, tuple[tuple[int, int], ...]]

BODIES: dict[str, Body] = {
    "batch_broadcast": (
        """in v0: f32[2,3,5,8]
           in v1: f32[3,8,6]
           v2: f32[2,3,5,6] = matmul(v0, v1)
           out v2""",
        (),
    ),
    "left_broadcast": (
        """in v0: f32[1,5,8]
           in v1: f32[4,8,6]
           v2: f32[4,5,6] = matmul(v0, v1)
           out v2""",
        (),
    ),
    "scores": (
        """in v0: f32[2,6,3,16]
           in v1: f32[2,2,7,16]
           v2: f32[2,2,1,7,16] = reshape(v1) shape=(2, 2, 1, 7, 16)
           v3: f32[2,2,3,7,16] = broadcast(v2) shape=(2, 2, 3, 7, 16)
           v4: f32[2,6,7,16] = reshape(v3) shape=(2, 6, 7, 16)
           v5: f32[2,6,16,7] = transpose(v4) perm=(0, 1, 3, 2)
           v6: f32[2,6,3,7] = matmul(v0, v5)
           v7: f32[] = const() dtype=f32 shape=() value=0.25
           v8: f32[2,6,3,7] = mul(v6, v7)
           out v8""",
        (),
    ),
    "residual": (
        """in v0: f32[1,3,16]
           in v1: f32[20,16]
           in v2: f32[1,3,20]
           in v3: f32[20]
           v4: f32[16,20] = transpose(v1) perm=(1, 0)
           v5: f32[1,3,20] = matmul(v0, v4)
           v6: f32[1,3,20] = add(v5, v3)
           v7: f32[1,3,20] = add(v2, v6)
           out v7, v6""",
        (),
    ),
    "heads_apart": (
        """in v0: f32[2,3,16]
           in v1: f32[16,24]
           v2: f32[2,3,24] = matmul(v0, v1)
           v3: f32[2,3,6,4] = reshape(v2) shape=(2, 3, 6, 4)
           v4: f32[2,6,3,4] = transpose(v3) perm=(0, 2, 1, 3)
           out v4""",
        (),
    ),
    "heads_together": (
        """in v0: f32[2,6,3,4]
           in v1: f32[24,10]
           v2: f32[2,3,6,4] = transpose(v0) perm=(0, 2, 1, 3)
           v3: f32[2,3,24] = reshape(v2) shape=(2, 3, 24)
           v4: f32[2,3,10] = matmul(v3, v1)
           out v4""",
        (),
    ),
    "rms_norm": (
        """in v0: f32[1,5,32]
           in v1: f32[32]
           in v2: f32[12,32]
           v3: f32[1,5,32] = mul(v0, v0)
           v4: f32[1,5,1] = reduce(v3) axis=(2,) keepdim=True kind=sum
           v5: f32[] = const() dtype=f32 shape=() value=0.03125
           v6: f32[1,5,1] = mul(v4, v5)
           v7: f32[1,5,1] = rsqrt(v6)
           v8: f32[1,5,32] = mul(v0, v7)
           v9: f32[1,5,32] = mul(v8, v1)
           v10: f32[32,12] = transpose(v2) perm=(1, 0)
           v11: f32[1,5,12] = matmul(v9, v10)
           out v11, v9""",
        (),
    ),
    "layer_norm_flat": (
        """in v0: f32[1,5,32]
           in v1: f32[32,12]
           v2: f32[1,5,1] = reduce(v0) axis=(2,) keepdim=True kind=max
           v3: f32[1,5,32] = sub(v0, v2)
           v4: f32[1,5,1] = reduce(v3) axis=(2,) keepdim=True kind=sum
           v5: f32[1,5,32] = div(v3, v4)
           v6: f32[5,32] = reshape(v5) shape=(5, 32)
           v7: f32[5,12] = matmul(v6, v1)
           v8: f32[1,5,12] = reshape(v7) shape=(1, 5, 12)
           out v8""",
        (),
    ),
    "swiglu": (
        """in v0: f32[1,3,16]
           in v1: f32[24,16]
           in v2: f32[24,16]
           v3: f32[16,24] = transpose(v1) perm=(1, 0)
           v4: f32[16,24] = transpose(v2) perm=(1, 0)
           v5: f32[1,3,24] = matmul(v0, v3)
           v6: f32[1,3,24] = matmul(v0, v4)
           v7: f32[1,3,24] = neg(v5)
           v8: f32[1,3,24] = exp(v7)
           v9: f32[] = const() dtype=f32 shape=() value=1.0
           v10: f32[1,3,24] = add(v8, v9)
           v11: f32[1,3,24] = div(v5, v10)
           v12: f32[1,3,24] = mul(v11, v6)
           out v12""",
        (),
    ),
    "qkv_with_rope_and_cache": (
        """in v0: f32[1,3,16]
           in v1: f32[24,16]
           in v2: f32[8,16]
           in v3: f32[3,4]
           in v4: f32[3,4]
           in v5: f32[1,1,9,8]
           in v6: i32[]
           v7: f32[16,24] = transpose(v1) perm=(1, 0)
           v8: f32[16,8] = transpose(v2) perm=(1, 0)
           v9: f32[1,3,24] = matmul(v0, v7)
           v10: f32[1,3,8] = matmul(v0, v8)
           v11: f32[1,3,3,8] = reshape(v9) shape=(1, 3, 3, 8)
           v12: f32[1,3,3,8] = transpose(v11) perm=(0, 2, 1, 3)
           v13: f32[1,3,1,8] = reshape(v10) shape=(1, 3, 1, 8)
           v14: f32[1,1,3,8] = transpose(v13) perm=(0, 2, 1, 3)
           v15: f32[1,1,9,8] = dynamic_update_slice(v5, v14, v6) axis=2
           out v12, v15""",
        ((1, 5),),
    ),
    "scatter": (
        """in v0: f32[4,16]
           in v1: f32[16,6]
           in v2: f32[9,2,3]
           in v3: i32[4]
           v4: f32[4,6] = matmul(v0, v1)
           v5: f32[4,2,3] = reshape(v4) shape=(4, 2, 3)
           v6: f32[9,2,3] = scatter_update(v2, v5, v3)
           out v6""",
        ((0, 2),),
    ),
    "q4_1": (
        """in v0: f32[1,64]
           in v1: u32[10,8]
           in v2: f16[10,2]
           in v3: f16[10,2]
           v4: u32[8] = iota() axis=0 dtype=u32 shape=(8,)
           v5: u32[] = const() dtype=u32 shape=() value=4
           v6: u32[8] = mul(v4, v5)
           v7: u32[10,8,1] = reshape(v1) shape=(10, 8, 1)
           v8: u32[10,8,8] = shr(v7, v6)
           v9: u32[] = const() dtype=u32 shape=() value=15
           v10: u32[10,8,8] = and(v8, v9)
           v11: f32[10,8,8] = cast(v10) dtype=f32
           v12: f32[10,2,32] = reshape(v11) shape=(10, 2, 32)
           v13: f32[10,2] = cast(v2) dtype=f32
           v14: f32[10,2,1] = reshape(v13) shape=(10, 2, 1)
           v15: f32[10,2,32] = mul(v12, v14)
           v16: f32[10,2] = cast(v3) dtype=f32
           v17: f32[10,2,1] = reshape(v16) shape=(10, 2, 1)
           v18: f32[10,2,32] = add(v15, v17)
           v19: f32[10,64] = reshape(v18) shape=(10, 64)
           v20: f32[64,10] = transpose(v19) perm=(1, 0)
           v21: f32[1,10] = matmul(v0, v20)
           out v21""",
        (),
    ),
    "narrow_with_wide": (
        """in v0: bf16[3,16]
           in v1: bf16[16,7]
           v2: bf16[3,7] = matmul(v0, v1)
           v3: f32[3,7] = cast(v2) dtype=f32
           v4: bf16[3,7] = neg(v2)
           out v3, v4""",
        (),
    ),
    "narrow_cache": (
        """in v0: f16[3,16]
           in v1: f16[16,7]
           in v2: f16[9,7]
           in v3: i32[]
           v4: f16[3,7] = matmul(v0, v1)
           v5: f16[9,7] = dynamic_update_slice(v2, v4, v3) axis=0
           out v5""",
        ((0, 2),),
    ),
}
