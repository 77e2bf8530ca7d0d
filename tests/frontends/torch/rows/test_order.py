"""Keys order as torch orders, wherever they are compared."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import poot
from poot import ops
from poot.frontends.torch.rows.order import ascending, descending, nan_first
from poot.oracle import run
from tests.support.aten import edges, ints

NAN, INF = float("nan"), float("inf")
ROWS = torch.tensor([
    [1.0, NAN, INF, NAN, -0.0, 0.0, -INF], [0.0, -0.0, 3.0, 3.0, -2.0, -2.0, 1e-42],
    [INF, INF, NAN, -NAN, 2.0, 1.0, 0.0], [-INF, -INF, -1.0, 0.5, 0.25, -0.5, -INF],
])  # fmt: skip


def keys(x: np.ndarray, dtype: str) -> list[np.ndarray]:
    def all_keys(x):
        return ascending(x), descending(x), nan_first(descending(x), x)

    graph = poot.trace(all_keys, (poot.slot(x.shape, dtype),))
    return list(run(graph, {"x": x}).outputs)


def test_the_order_of_keys_is_the_order_of_a_stable_sort():
    x = torch.cat((edges(), edges().flip(0)))
    up, down, _ = keys(x.numpy(), "f32")
    order = x.sort(stable=True).indices.tolist()
    assert np.argsort(up, kind="stable").tolist() == order
    assert np.argsort(-down.astype(np.int64), kind="stable").tolist() == order


def test_integers_at_their_ends_are_keys_in_order():
    x = np.array([0, 2**31 - 1, -(2**31), -1], np.int32)
    up, down, same = keys(x, "i32")
    assert np.argsort(up).tolist() == [2, 3, 0, 1]
    assert np.argsort(down).tolist() == [1, 0, 3, 2]
    assert same.tolist() == down.tolist()


class Orders(torch.nn.Module):
    def forward(self, x):
        most, at = x.max(-1)
        least, below = x.min(-1)
        return (
            x.argmax(-1), x.argmin(-1), at, below, *x.topk(4, -1), *x.topk(3, -1, largest=False),
            *x.sort(dim=-1, stable=True), *x.sort(dim=-1, stable=True, descending=True),
            most, least,
        )  # fmt: skip


@pytest.mark.parametrize("target", ["oracle", "cpu", "vulkan"])
def test_orders_among_nan_are_those_of_torch_on_every_target(target):
    imported = poot.from_torch(torch.export.export(Orders(), (ROWS,)))
    got = imported.bind(poot.compile(imported.graph, target)).step(x=ROWS)
    # topk of torch leaves open which of two equal values comes first; sort (stable) doesn't.
    want = list(Orders()(ROWS))
    want[5] = ROWS.sort(dim=-1, stable=True, descending=True).indices[:, :4]
    want[7] = ROWS.sort(dim=-1, stable=True).indices[:, :3]
    for x, y in zip(got, want, strict=True):
        np.testing.assert_array_equal(np.asarray(x), y.numpy())


def test_sixteen_bits_and_bytes_have_their_orders_too():
    for x in (ROWS.to(torch.bfloat16), ROWS.half(), ints(4, 7, lo=0).to(torch.uint8)):
        imported = poot.from_torch(torch.export.export(Orders(), (x,)))
        got = imported.bind(poot.compile(imported.graph, "oracle")).step(x=x)
        want = Orders()(x)
        for n in (0, 1, 2, 3, 9, 11):
            np.testing.assert_array_equal(np.asarray(got[n]), want[n].numpy())


def test_the_largest_of_a_scalar_is_itself():
    graph = poot.trace(lambda x: ops.argmax(ascending(x)), (poot.slot((1,), "f32"),))
    assert run(graph, {"x": np.array([NAN], np.float32)}).outputs[0] == 0
