"""ATen ops that move elements beside torch."""

from __future__ import annotations

import pytest
import torch

from poot.errors import UnsupportedOps
from poot.frontends.torch.rows.shape import SHAPE
from tests.support.aten import Case, bools, check, floats, ints

A, N, V = floats(3, 4), ints(3, 4), floats(6)
W = floats(2, 3, 4)
F32, I64 = torch.float32, torch.int64

CASES: dict[str, list[Case]] = {
    **{f"{n}.default": [(A,)] for n in ("alias", "clone", "detach", "lift_fresh_copy",
                                         "lift_fresh", "detach_copy", "alias_copy", "contiguous")},
    "_to_copy.default": [(A,)],
    "to.dtype": [(A, I64), (N, F32), (bools(3), F32), (A * 2, torch.bool)],
    "to.device": [(A, torch.device("cpu"), F32)],
    "to.dtype_layout": [(A,)],
    "to.other": [(A, N)],
    "type_as.default": [(A, N)],
    "view.default": [(A, [2, 6]), (A, [-1])],
    "reshape.default": [(A, [2, 6])],
    "_unsafe_view.default": [(A, [4, 3])],
    "_reshape_alias.default": [(A, [4, 3], [3, 1])],
    "view_copy.default": [(A, [12])],
    "unsqueeze.default": [(A, 1), (A, -1), (A, 0)],
    "squeeze.default": [(floats(1, 3, 1),)],
    "squeeze.dim": [(floats(1, 3, 1), 0), (A, 0)],
    "squeeze.dims": [(floats(1, 3, 1), [0, 2])],
    "flatten.using_ints": [(W, 1), (W,)],
    "unflatten.int": [(A, 1, [2, 2])],
    "zeros.default": [([2, 3],)],
    "zeros_like.default": [(N,)],
    "new_zeros.default": [(A, [2])],
    "empty.memory_format": [],
    "empty_like.default": [],
    "new_empty.default": [],
    "expand.default": [(floats(1, 4), [3, -1]), (V, [2, 6])],
    "expand_as.default": [(floats(1, 4), A)],
    "permute.default": [(W, [2, 0, 1]), (W, [-1, 0, 1])],
    "transpose.int": [(W, 1, 2), (W, -1, 0)],
    "t.default": [(A,), (V,)],
    "slice.Tensor": [(A, 1, 1, 3), (A, 0, -2), (A, 1, 0, 9223372036854775807, 2), (A, 0, 2, 1),
                     (A, 1, -100, 100)],
    "slice_scatter.default": [(A, floats(3, 2, seed=3), 1, 1, 3), (A, floats(3, 4, seed=3)),
                              (A, floats(3, 1, seed=3), 1, -1)],
    "select.int": [(W, 1, 2), (W, -1, -1), (V, 0, 3)],
    "select_scatter.default": [(A, floats(4, seed=3), 0, 1), (A, floats(3, seed=3), 1, -1)],
    "cat.default": [([A, A + 1],), ([A, floats(3, 2)], 1), ([A, floats(0)], 1), ([A, N], 0)],
    "stack.default": [([A, A + 1],), ([A, A], -1)],
    "split_with_sizes.default": [(A, [1, 3], 1)],
    "split.Tensor": [(V, 4), (A, 2, 1)],
    "chunk.default": [(V, 4), (A, 2, 1)],
    "unbind.int": [(A,), (A, 1)],
    "repeat.default": [(A, [2, 1]), (A, [2, 1, 3])],
    "repeat_interleave.self_int": [(A, 2), (A, 3, 1)],
    "flip.default": [(A, [0]), (A, [0, 1])],
    "constant_pad_nd.default": [(A, [1, 2]), (A, [0, 0, 2, 1], 7.0), (A, [-1, 1]), (N, [1, 0], 3)],
    "full.default": [([2, 3], 0.5), ([2], True), ([], 3)],
    "full_like.default": [(A, 2), (N, 2.0)],
    "new_full.default": [(A, [2, 2], 1.5)],
    "fill.Scalar": [(A, 2.0)],
    "fill.Tensor": [(A, torch.tensor(2.0))],
    "scalar_tensor.default": [(2.5,), (True,)],
    "ones.default": [([2, 3],)],
    "ones_like.default": [(N,)],
    "new_ones.default": [(A, [2])],
    "copy.default": [(A, floats(4, seed=4)), (A, N)],
    "arange.default": [(5,), (2.5,)],
    "arange.start": [(2, 7), (0.5, 3.0)],
    "arange.start_step": [(2, 11, 3), (5, 0, -2), (0.0, 1.0, 0.25)],
    "tril.default": [(A,), (W, 1), (A, -1)],
    "triu.default": [(A,), (W, 1), (bools(3, 3), 1)],
    "diagonal.default": [(A,), (A, 1), (A, -1), (W, 0, 1, 2), (W, 1, 0, 2)],
    "roll.default": [(A, [1], [0]), (A, [2]), (A, [1, -1], [0, 1])],
    "unfold.default": [(V, 0, 3, 2), (A, 1, 2, 1)],
    "dropout.default": [(A, 0.5, False)],
    "native_dropout.default": [(A, 0.5, False)],
}  # fmt: skip


@pytest.mark.parametrize(
    "name, case", [(n, c) for n, cs in CASES.items() for c in cs], ids=lambda x: str(x)[:24]
)
def test_a_row_gives_what_torch_gives(name: str, case: Case):
    check(name, *case)


def test_every_row_has_a_case():
    assert sorted(CASES) == sorted(SHAPE)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.int32, torch.bool])
def test_a_copy_casts(dtype: torch.dtype):
    check("_to_copy.default", A * 3, dtype=dtype)
    check("ones.default", [2], dtype=dtype)


def test_dropout_in_training_is_refused():
    with pytest.raises(UnsupportedOps, match="a model in eval mode"):
        check("dropout.default", A, 0.5, True)
