"""Attention over paged caches as an op of torch's, against torch's own attention of each row."""

from __future__ import annotations

import pytest
import torch

import poot
from poot.errors import BindError
from poot.frontends.torch.paged import decode_graph
from poot.torch import paged_decode

CARD = [pytest.param("cpu"), pytest.param("cuda", marks=pytest.mark.cuda)]
WITHIN = {torch.float32: 2e-5, torch.float16: 4e-3, torch.bfloat16: 3e-2}


def given(
    target: str, dtype: torch.dtype, heads: tuple[int, int] = (4, 2), width: int = 64,
    lengths: tuple[int, ...] = (70, 1, 33),
) -> tuple[torch.Tensor, ...]:  # fmt: skip
    make = torch.Generator().manual_seed(0)
    blocks, size, row = 20, 16, 5
    q = torch.randn(len(lengths), heads[0], 1, width, generator=make)
    k, v = (torch.randn(blocks, size, heads[1], width, generator=make) for _ in range(2))
    order = [torch.randperm(blocks, generator=make)[:row] for _ in lengths]
    table = torch.stack(order).to(torch.int32)
    floats = (x.to(dtype).to(target) for x in (q, k, v))
    return (*floats, table.to(target), torch.tensor(lengths, dtype=torch.int32, device=target))


def by_torch(q, k, v, table, lengths, window: int = 0, **options: float) -> torch.Tensor:
    rows: list[torch.Tensor] = []
    for b, length in enumerate(lengths.tolist()):
        n_rep, first = q.shape[1] // k.shape[2], max(0, length - window) if window else 0
        keys, values = (
            x[table[b].long()].reshape(-1, *x.shape[2:])[first:length].transpose(0, 1).float()
            for x in (k, v)
        )
        keys, values = (x.repeat_interleave(n_rep, 0) for x in (keys, values))
        rows.append(
            torch.nn.functional.scaled_dot_product_attention(q[b].float(), keys, values, **options)
        )
    return torch.stack(rows)


@pytest.mark.parametrize("target", CARD)
@pytest.mark.parametrize("dtype", WITHIN, ids=str)
@pytest.mark.parametrize("heads", [(4, 4), (4, 2), (6, 1)])
def test_each_row_is_torchs_attention_over_its_blocks(target, dtype, heads):
    tensors = given(target, dtype, heads)
    out = paged_decode(*tensors)
    assert (out.dtype, out.shape) == (dtype, tensors[0].shape)
    torch.testing.assert_close(out.float(), by_torch(*tensors), atol=WITHIN[dtype], rtol=0)


@pytest.mark.parametrize("target", CARD)
def test_scale_and_window_are_the_callers(target):
    tensors = given(target, torch.float32)
    torch.testing.assert_close(
        paged_decode(*tensors, scale=0.3), by_torch(*tensors, scale=0.3), atol=2e-5, rtol=0
    )
    torch.testing.assert_close(
        paged_decode(*tensors, window=20), by_torch(*tensors, window=20), atol=2e-5, rtol=0
    )
    capped = paged_decode(*tensors, softcap=1.0)
    assert not torch.allclose(capped, by_torch(*tensors))


@pytest.mark.parametrize("target", CARD)
def test_a_row_without_tokens_is_zero_and_touches_no_other(target):
    tensors = given(target, torch.float32, lengths=(70, 0, 33))
    out = paged_decode(*tensors)
    assert not out[1].any()
    rows = [0, 2]
    some = [x[rows] if n in (0, 3, 4) else x for n, x in enumerate(tensors)]
    torch.testing.assert_close(out[rows], by_torch(*some), atol=2e-5, rtol=0)


def test_lengths_and_blocks_out_of_bounds_are_taken_as_the_nearest():
    q, k, v, table, lengths = given("cpu", torch.float32)
    table[0, 0], lengths[1] = 99, 500
    out = paged_decode(q, k, v, table, lengths)
    table[0, 0], lengths[1] = 19, 80
    torch.testing.assert_close(out, by_torch(q, k, v, table, lengths), atol=2e-5, rtol=0)


def test_it_stands_inside_a_compiled_program():
    tensors = given("cpu", torch.float32)
    compiled = torch.compile(
        lambda q, *rest: paged_decode(q * 1.0, *rest) + 1.0, fullgraph=True, backend="aot_eager"
    )
    torch.testing.assert_close(compiled(*tensors), by_torch(*tensors) + 1.0, atol=2e-5, rtol=0)


def test_it_is_one_launch_of_the_fast_schedule_on_an_h200():
    shapes = ((8, 32, 1, 128), (2048, 16, 8, 128), (2048, 16, 8, 128), (8, 256), (8,))
    program = poot.compile(decode_graph("bf16", shapes, 0.1, 0.0, 0), "h200")
    (entry,) = program.plan.entries
    assert [s.request.schedule.name for s in entry.steps] == ["grouped"]
    assert not entry.records


@pytest.mark.parametrize("what", range(5))
def test_shapes_that_do_not_belong_together_are_refused(what):
    tensors = list(given("cpu", torch.float32))
    tensors[what] = tensors[what][:-1].repeat(3, *[1] * (tensors[what].ndim - 1))
    if what in (1, 2):
        tensors[what] = tensors[what][:, :7]
    with pytest.raises(BindError, match="paged_decode needs query"):
        paged_decode(*tensors)


def test_a_dtype_that_attention_lacks_is_refused():
    tensors = given("cpu", torch.float64)
    with pytest.raises(BindError, match=r"got torch.float64 \(3, 4, 1, 64\)"):
        paged_decode(*tensors)


@pytest.mark.cuda
def test_a_cuda_graph_that_torch_captures_holds_it():
    q, k, v, table, lengths = given("cuda", torch.bfloat16)
    paged_decode(q, k, v, table, lengths)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = paged_decode(q * 1.0, k, v, table, lengths)
    for n in (3, 60, 80):
        lengths.fill_(n)
        k.normal_()
        graph.replay()
        torch.testing.assert_close(
            out.float(), by_torch(q, k, v, table, lengths), atol=3e-2, rtol=0
        )
