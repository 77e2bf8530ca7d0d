"""What of a graph poot takes."""

from __future__ import annotations

from typing import Any

import torch
from torch.fx.experimental.proxy_tensor import make_fx

from poot.frontends.torch.partition import Partition, partitioned


def traced(fn: Any, *args: torch.Tensor) -> torch.fx.GraphModule:
    return make_fx(fn, tracing_mode="fake")(*args)


def calls(module: torch.fx.GraphModule) -> list[torch.fx.Node]:
    return [n for n in module.graph.nodes if n.op == "call_function"]


def parts(fn: Any, *args: torch.Tensor) -> Partition:
    return partitioned(traced(fn, *args))


def left(found: Partition) -> list[str]:
    return [n.op for n in found.left]


def agrees(found: Partition, fn: Any, *args: torch.Tensor) -> None:
    """The pieces and what is between them, all by torch, are the function."""
    assert torch.equal(found.module(*args), fn(*args))


def test_what_is_known_becomes_one_part():
    found = parts(lambda x, y: (x @ y).relu() + 1, torch.zeros(2, 3), torch.zeros(3, 2))
    assert (len(found.pieces), found.left, calls(found.module)) == (1, (), [])


def test_a_dtype_that_poot_has_not_stays_torchs_with_all_that_is_made_of_it():
    found = parts(lambda x: (x.double().sin().float() + 1).relu(), torch.zeros(3))
    assert [n.why for n in found.left] == [
        "a value of float64, which poot has not",
        "a value of float64, which poot has not",
        "operand sin is a value of float64, which poot has not",
    ]
    assert len(found.pieces) == 1


def test_parts_of_several_results_go_with_their_source():
    found = parts(lambda x: x.max(1)[1], torch.zeros(2, 3))
    assert (len(found.pieces), found.left, calls(found.module)) == (1, (), [])


def test_orders_are_indices_and_fit():
    def fn(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return x.argmax(1), x.argmin(1), x.min(1)[1], x.topk(2)[1], x.sort()[1]

    for x in (torch.zeros(2, 3), torch.zeros(2, 3, dtype=torch.int64)):
        assert parts(fn, x).left == ()


def test_what_is_not_known_stays_between_its_parts():
    def fn(x: torch.Tensor) -> torch.Tensor:
        return torch.cummax(x + 1, 0)[0].sin() * 2

    found = parts(fn, torch.zeros(4))
    assert len(found.pieces) == 2
    assert left(found) == ["aten.cummax.default"]
    assert found.left[0].why == "there is no row for it"
    assert "aten.cummax.default" in [str(n.target) for n in calls(found.module)]


def test_integers_of_64_bits_that_may_pass_32_stay_torchs():
    ids = torch.tensor([1, 2])
    found = parts(lambda i: i * 1000003, ids)
    assert left(found) == ["aten.mul.Tensor"]
    assert "isn't proved to stay within the 32" in found.left[0].why
    assert left(parts(lambda i: i * 1000003, ids.int())) == []
    found = parts(lambda i: (i + 1) * 2, ids)
    assert left(found) == []
    assert list(found.pieces[0].limits.values()) == [(-(2**24), 2**24)]


def test_what_is_given_on_is_taken_in_the_limits_that_were_proved_of_it():
    def fn(i: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        at = i + 1
        return torch.cummax(at * 1.5 + x, 0)[0] + at * 2

    found = parts(fn, torch.tensor([1, 2]), torch.zeros(2))
    low, high = -(2**24), 2**24
    assert left(found) == ["aten.cummax.default"]
    limits = {x for p in found.pieces for x in p.limits.values()}
    assert limits <= {(low, high), (low + 1, high + 1)}
    assert (low, high) in limits


def test_a_float_is_cut_to_an_index_but_not_to_a_number_of_64_bits():
    table = torch.arange(5.0)
    found = parts(lambda x, t: t[(x * 2).long()], torch.zeros(3), table)
    assert found.left == ()
    found = parts(lambda x, t: (x * 2).long().clamp(0, 4) + 1, torch.zeros(3), table)
    assert found.left == ()
    found = parts(lambda x, t: (x * 2).long(), torch.zeros(3), table)
    assert left(found) == ["aten._to_copy.default"]


def test_what_depends_on_nothing_given_is_what_torch_says():
    def fn(x: torch.Tensor) -> torch.Tensor:
        far = torch.log(torch.arange(4) / 2.0).to(torch.long)  # of -inf: not in 32 bits
        return x[torch.minimum(torch.where(torch.arange(4) > 0, far, 1) + 2, torch.tensor(3))]

    x = torch.randn(5)
    found = parts(fn, x)
    assert found.left == ()
    (piece,) = found.pieces
    assert [1, 0, 0, 0] in [c.tolist() for c in piece.consts.values()]
    agrees(found, fn, x)


def test_tensors_of_another_device_stay_torchs():
    module = traced(lambda x: x + 1, torch.zeros(3))
    found = partitioned(module, "cuda:0")
    assert found.pieces == ()
    assert "on cpu, where the graph is on cuda:0" in found.left[0].why
