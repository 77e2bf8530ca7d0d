"""From a request to its launches: one generator a schedule."""

from __future__ import annotations

from collections.abc import Callable

from poot.codegen.gen import pull_math, pull_shape
from poot.codegen.gen.attention.grouped.direct import lower_grouped_split
from poot.codegen.gen.attention.grouped.kernel import lower_grouped
from poot.codegen.gen.attention.key_blocks import lower_key_blocks
from poot.codegen.gen.attention.latent.kernel import lower_latent
from poot.codegen.gen.attention.shared_key import lower_shared_key
from poot.codegen.gen.attention.split_kv import lower_split_kv
from poot.codegen.gen.attention.streaming import lower_streaming
from poot.codegen.gen.attention.subgroup_tiles.kernel import lower_subgroup_tiles
from poot.codegen.gen.attention.tiled.kernel import lower_tiled
from poot.codegen.gen.elementwise import lower_elementwise
from poot.codegen.gen.lowered import Lowered
from poot.codegen.gen.matmul.direct import lower_gemv
from poot.codegen.gen.matmul.matrix.fragments import lower_matrix
from poot.codegen.gen.matmul.matrix.ring import lower_matrix_ring
from poot.codegen.gen.matmul.panels import lower_panels
from poot.codegen.gen.matmul.stream.kernel import lower_stream
from poot.codegen.gen.matmul.tiled import lower_gemm
from poot.codegen.gen.rank import lower_argmax, lower_topk
from poot.codegen.gen.ranked import lower_ranked_topk
from poot.codegen.gen.reduce import lower_reduce
from poot.codegen.gen.selection.best_blocks import lower_best_blocks
from poot.codegen.gen.selection.block_scores import lower_block_scores
from poot.codegen.gen.selection.held import lower_held_topk
from poot.codegen.gen.selection.tiles import lower_selected
from poot.errors import CapabilityError
from poot.limits import DeviceLimits
from poot.planner.request import Request

# The modules whose import fills the table of pull rows.
PULL_MODULES = (pull_math, pull_shape)

SCHEDULES: dict[str, Callable[[Request, DeviceLimits], Lowered]] = {
    "argmax": lower_argmax,
    "block_scores": lower_block_scores,
    "block_topk": lower_best_blocks,
    "elementwise": lower_elementwise,
    "gemm": lower_gemm,
    "gemv": lower_gemv,
    "grouped": lower_grouped,
    "grouped_split": lower_grouped_split,
    "held_topk": lower_held_topk,
    "key_blocks": lower_key_blocks,
    "latent": lower_latent,
    "matrix": lower_matrix,
    "matrix_ring": lower_matrix_ring,
    "panels": lower_panels,
    "ranked_topk": lower_ranked_topk,
    "reduce": lower_reduce,
    "selected": lower_selected,
    "shared_key": lower_shared_key,
    "stream": lower_stream,
    "streaming": lower_streaming,
    "split_kv": lower_split_kv,
    "subgroup_tiles": lower_subgroup_tiles,
    "tiled": lower_tiled,
    "topk": lower_topk,
}


def lower(request: Request, limits: DeviceLimits) -> Lowered:
    """The kernels of a request, by its schedule. Raises GridLimit and CapabilityError."""
    row = SCHEDULES.get(request.schedule.name)
    if row is None:
        raise CapabilityError(
            f"no generator writes the schedule {request.schedule.name!r}; "
            f"schedules: {', '.join(sorted(SCHEDULES))}"
        )
    return row(request, limits)
