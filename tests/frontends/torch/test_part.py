"""A compiled part, by itself."""

from __future__ import annotations

import weakref
from typing import Any

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

from poot.frontends.torch.backend import _Held
from poot.frontends.torch.part import HostBound, Part, StreamBound
from poot.frontends.torch.partition import partitioned


class Whole:
    """A function of one part, called by its own arguments' order; its argument w is a weight."""

    def __init__(self, fn: Any, *args: torch.Tensor, makes: Any = HostBound) -> None:
        found = partitioned(make_fx(fn, tracing_mode="fake")(*args))
        (piece,) = found.pieces
        self.part = Part(piece, frozenset({"w_1"}), "cpu", "watched")
        self.part.makes = makes
        setattr(found.module, piece.name, _Held(self.part))
        self.module = found.module

    def __call__(self, *tensors: torch.Tensor) -> Any:
        return self.module(*tensors)


def buffers_of(runner: Any) -> list[Any]:
    """The buffers of a runner's weights, on the device."""
    shared = runner._shared
    return list((shared if isinstance(shared, dict) else shared.buffers).values())


BOUND = pytest.mark.parametrize("makes", [HostBound, StreamBound])


@BOUND
def test_results_are_those_of_torch_in_dtype_and_strides(makes: Any):
    def fn(x: torch.Tensor, i: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = x @ w
        return y.t(), y.argmax(1), y > 0, i + 1, y.to(torch.bfloat16)

    given = torch.randn(3, 4), torch.tensor([1, 2]), torch.randn(4, 5)
    whole = Whole(fn, *given, makes=makes)
    for scale in (1.0, 2.0):
        args = (given[0] * scale, *given[1:])
        for got, want in zip(whole(*args), fn(*args), strict=True):
            assert (got.dtype, got.stride(), got.device) == (
                want.dtype, want.stride(), want.device,
            )  # fmt: skip
            torch.testing.assert_close(got, want)
    assert whole.part.handed == 0


@BOUND
def test_a_weight_that_changed_is_bound_anew(makes: Any):
    x, w = torch.randn(3, 4), torch.randn(4, 5)
    whole = Whole(lambda x, w: x @ w, x, w, makes=makes)
    torch.testing.assert_close(whole(x, w), x @ w)
    first = whole.part.bound
    whole(x, w)
    assert whole.part.bound is first
    w.data.mul_(2)
    torch.testing.assert_close(whole(x, w), x @ w)
    assert whole.part.bound is not first


@BOUND
def test_what_is_released_is_gone_and_bound_anew_by_the_next_call(makes: Any):
    x, w = torch.randn(3, 4), torch.randn(4, 5)
    whole = Whole(lambda x, w: x @ w, x, w, makes=makes)
    whole(x, w)
    bound: Any = whole.part.bound
    runner = bound.made.runner if makes is StreamBound else bound.session.runner
    held = [weakref.ref(b) for b in buffers_of(runner)]
    del bound, runner
    whole.part.release()
    assert held
    assert [ref() for ref in held] == [None] * len(held)
    whole.part.release()
    torch.testing.assert_close(whole(x, w), x @ w)


@BOUND
def test_what_a_graph_was_captured_of_stays_bound(makes: Any):
    x, w = torch.randn(3, 4), torch.randn(4, 5)
    whole = Whole(lambda x, w: x @ w, x, w, makes=makes)
    whole(x, w)
    bound = whole.part.bound
    assert bound is not None
    assert not bound.is_captured
    bound.is_captured = True
    whole.part.release()
    assert whole.part.bound is bound


@BOUND
def test_what_a_part_is_not_made_for_is_torchs_for_that_call(makes: Any):
    whole = Whole(lambda i, x: x[i + 1], torch.tensor([1]), torch.randn(5), makes=makes)
    x = torch.randn(5)
    assert whole(torch.tensor([2]), x) == x[3]
    for bad in (4, 2**40):
        with pytest.raises(IndexError):
            whole(torch.tensor([bad]), x)
    assert whole(torch.tensor([0]), x) == x[1]
    assert whole.part.handed == 2


@BOUND
def test_weights_may_hold_infinities(makes: Any):
    w = torch.tensor([0.0, float("-inf")])
    whole = Whole(lambda x, w: x + w, torch.zeros(2), w, makes=makes)
    assert whole(torch.ones(2), w).tolist() == [1.0, float("-inf")]
