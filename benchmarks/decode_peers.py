"""What poot's decode is measured beside: PyTorch's SDPA (flash, cuDNN, math) and FlashInfer."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import torch
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel

BACKENDS = {
    "flash": SDPBackend.FLASH_ATTENTION,
    "cudnn": SDPBackend.CUDNN_ATTENTION,
    "math": SDPBackend.MATH,
}
WORKSPACE_NBYTES = 256 << 20


def sdpa(
    name: str, q: torch.Tensor, keys: list[torch.Tensor], values: list[torch.Tensor]
) -> list[Callable[[], torch.Tensor]]:
    """A call for each set of keys and values, under one backend of SDPA."""
    grouped = q.shape[1] != keys[0].shape[1]

    def call(n: int) -> Callable[[], torch.Tensor]:
        def run() -> torch.Tensor:
            with sdpa_kernel(BACKENDS[name]):
                return functional.scaled_dot_product_attention(
                    q, keys[n], values[n], enable_gqa=grouped
                )

        return run

    return [call(n) for n in range(len(keys))]


def flashinfer_calls(
    q: torch.Tensor,
    pools: list[torch.Tensor],
    pages: torch.Tensor,
    starts: torch.Tensor,
    last: torch.Tensor,
    *,
    tensor_cores: bool,
) -> list[Callable[[], torch.Tensor]]:
    """`run()` of FlashInfer's paged decode over pools [pages, 2, 16, heads, width], planned once.
    Raises ImportError where it isn't there, or has no compiled modules of this width."""
    import flashinfer
    from flashinfer.jit.env import FLASHINFER_AOT_DIR

    heads, width, kv_heads = q.shape[1], q.shape[2], pools[0].shape[3]
    kind = "prefill" if tensor_cores else "decode"
    if not list(Path(FLASHINFER_AOT_DIR).glob(f"batch_{kind}*head_dim_qk_{width}_*/*.so")):
        raise ImportError(f"FlashInfer has no compiled batch_{kind} of width {width}")
    workspace = torch.empty(WORKSPACE_NBYTES, dtype=torch.uint8, device=q.device)
    wrapper = flashinfer.BatchDecodeWithPagedKVCacheWrapper(
        workspace, "NHD", use_cuda_graph=False, use_tensor_cores=tensor_cores
    )
    wrapper.plan(
        starts, pages, last, heads, kv_heads, width, 16,
        q_data_type=q.dtype, kv_data_type=q.dtype,
    )  # fmt: skip
    return [lambda pool=pool: wrapper.run(q, pool) for pool in pools]
