"""ATen products, norms, softmax and attention beside torch."""

from __future__ import annotations

import pytest
import torch

from poot.errors import UnsupportedOps
from poot.frontends.torch.rows.nn import NN
from tests.support.aten import Case, bools, check, floats

A, B, ROW = floats(3, 4), floats(4, 5, seed=1), floats(5, seed=2)
S, T = floats(2, 3, 4), floats(2, 4, 5, seed=1)
X, GAIN, BIAS = floats(2, 3, 8), floats(8, seed=1), floats(8, seed=2)
Q, K, V = floats(2, 4, 5, 8), floats(2, 4, 7, 8, seed=1), floats(2, 4, 7, 6, seed=2)
SEEN = bools(2, 1, 5, 7)
SEEN[0, 0, 2] = False  # a row that sees nothing
PLANE = torch.where(SEEN, floats(2, 1, 5, 7, seed=3), float("-inf"))
SQUARE = (Q, floats(2, 4, 5, 8, seed=1), floats(2, 4, 5, 8, seed=2))
DEAD = torch.tensor([[1.0, float("-inf"), 2.0], [float("-inf")] * 3])

CASES: dict[str, list[Case]] = {
    "mm.default": [(A, B)],
    "bmm.default": [(S, T)],
    "matmul.default": [(A, B), (S, B), (A, floats(4)), (floats(4), B), (floats(4), floats(4))],
    "mv.default": [(A, floats(4))],
    "dot.default": [(floats(4), floats(4, seed=1))],
    "addmm.default": [(ROW, A, B), (floats(3, 5), A, B)],
    "baddbmm.default": [(floats(2, 1, 5), S, T)],
    "linear.default": [(S, floats(6, 4), floats(6)), (S, floats(6, 4)), (S, floats(4))],
    "native_layer_norm.default": [(X, [8], GAIN, BIAS, 1e-5), (X, [3, 8], None, None, 1e-5)],
    "layer_norm.default": [(X, [8], GAIN, BIAS), (X, [8])],
    "rms_norm.default": [(X, [8], GAIN, 1e-6), (X, [8])],
    "native_group_norm.default": [(floats(2, 4, 3), floats(4), floats(4), 2, 4, 3, 2, 1e-5),
                                  (floats(2, 4, 3), None, None, 2, 4, 3, 1, 1e-5)],
    "_native_batch_norm_legit_no_training.default": [
        (floats(2, 4, 3), floats(4), floats(4), floats(4, seed=1), floats(4).abs(), 0.1, 1e-5),
        (floats(2, 4), None, None, floats(4, seed=1), floats(4).abs(), 0.1, 1e-5),
        (floats(2, 4, 3, 2).bfloat16(), floats(4), floats(4), floats(4, seed=1),
         floats(4).abs(), 0.1, 1e-5),
    ],
    "_softmax.default": [(A, -1, False), (A, 0, False)],
    "softmax.int": [(A, -1), (S, 1)],
    "_log_softmax.default": [(A, -1, False)],
    "log_softmax.int": [(A, 0)],
    "_safe_softmax.default": [(DEAD, -1), (A, 0)],
    "scaled_dot_product_attention.default": [
        (Q, K, V), (Q, K, V, SEEN), (Q, K, V, PLANE), (*SQUARE, None, 0.0, True),
        (Q[0], K[0], V[0]), (Q, K[:, :2], V[:, :2], None, 0.0, False, 0.3, True),
    ],
    "_scaled_dot_product_flash_attention_for_cpu.default": [(*SQUARE,), (*SQUARE, 0.0, True)],
}  # fmt: skip


@pytest.mark.parametrize(
    "name, case", [(n, c) for n, cs in CASES.items() for c in cs], ids=lambda x: str(x)[:24]
)
def test_a_row_gives_what_torch_gives(name: str, case: Case):
    check(name, *case)


def test_every_row_has_a_case():
    assert sorted(CASES) == sorted(NN)


def test_options_reach_their_rows():
    check("addmm.default", ROW, A, B, beta=0, alpha=2)
    check("baddbmm.default", floats(2, 1, 5), S, T, beta=0.5, alpha=2.0)
    check("softmax.int", A.to(torch.bfloat16), -1, torch.float32)
    plane = torch.where(torch.ones(5, 5).tril() > 0, 0.5, float("-inf"))
    check("_scaled_dot_product_flash_attention_for_cpu.default", *SQUARE, attn_mask=plane)
    check("_scaled_dot_product_flash_attention_for_cpu.default", *SQUARE, scale=0.2)


def test_a_bias_that_is_not_read_may_hold_anything():
    check("addmm.default", torch.full((5,), float("nan")), A, B, beta=0)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_sixteen_bits_stay_sixteen_bits(dtype: torch.dtype):
    check("linear.default", S.to(dtype), floats(6, 4).to(dtype), floats(6).to(dtype), close=2e-2)
    check("layer_norm.default", X.to(dtype), [8], GAIN.to(dtype), BIAS.to(dtype), close=2e-2)
    q, k, v = (x.to(dtype) for x in (Q, K, V))
    check("scaled_dot_product_attention.default", q, k, v, close=2e-2)


def test_attention_with_dropout_is_refused():
    with pytest.raises(UnsupportedOps, match="no dropout"):
        check("scaled_dot_product_attention.default", Q, K, V, None, 0.5)
