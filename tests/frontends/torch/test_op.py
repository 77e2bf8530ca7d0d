"""Programs as ops of torch's: eager, compiled, and on a card in a CUDA graph."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch

import poot
from poot import ops
from poot.errors import BackendError, BindError, RangeError, ValidationError
from poot.torch import CustomOp, as_custom_op
from tests.support.everywhere import compile_on

W = torch.randn(8, 4, generator=torch.Generator().manual_seed(0))
CARD = [pytest.param("cpu"), pytest.param("cuda", marks=pytest.mark.cuda)]


def on_device(target: str) -> torch.device:
    return torch.device("cuda", 0) if target == "cuda" else torch.device("cpu")


def softmax_op(target: str) -> CustomOp:
    def fn(x, w):
        return {"y": ops.softmax(x @ w), "big": x.sum(axis=1) > 0.0}

    graph = poot.trace(fn, (poot.slot((4, 8), "f32"), poot.weight((8, 4))))
    return as_custom_op(compile_on(target, graph), {"w": W})


def want(x: torch.Tensor) -> torch.Tensor:
    return torch.softmax(x @ W.to(x.device), -1)


@pytest.mark.parametrize("target", CARD)
def test_an_op_gives_what_the_program_gives_nested_as_it_does(target):
    op = softmax_op(target)
    x = torch.randn(4, 8, device=on_device(target))
    out = op(x)
    torch.testing.assert_close(out["y"], want(x), atol=1e-5, rtol=0)
    assert torch.equal(out["big"], x.sum(1) > 0)
    torch.testing.assert_close(op(x=x)["y"], out["y"])


@pytest.mark.parametrize("target", CARD)
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_an_op_stands_inside_a_compiled_program_whole(target, backend):
    op = softmax_op(target)

    def model(x):
        return op(x * 2.0)["y"] + 1.0

    x = torch.randn(4, 8, device=on_device(target))
    compiled = torch.compile(model, fullgraph=True, backend=backend)
    torch.testing.assert_close(compiled(x), want(2.0 * x) + 1.0, atol=1e-5, rtol=0)


def cache_op(target: str) -> CustomOp:
    def fn(cache, x, pos):
        cache = ops.dynamic_update_slice(cache, x, pos, axis=0)
        return cache.sum(axis=0), cache

    specs = (poot.state((4, 8)), poot.slot((1, 8), "f32"), poot.slot((), "i32", range=(0, 4)))
    return as_custom_op(compile_on(target, poot.trace(fn, specs)))


@pytest.mark.parametrize("target", CARD)
def test_a_state_is_the_callers_tensor_and_is_written_in_place(target):
    op, device = cache_op(target), on_device(target)
    assert op.names == ("x", "pos", "cache")
    cache, x = torch.ones(4, 8, device=device), torch.full((1, 8), 5.0, device=device)
    out = op(x=x, pos=torch.tensor(2, dtype=torch.int32, device=device), cache=cache)
    assert cache.sum(1).tolist() == [8, 8, 40, 8]
    assert out.tolist() == [8.0] * 8

    def model(x, pos, cache):
        return op(x + 1.0, pos, cache) + cache[0]

    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    got = compiled(x, torch.tensor(0, dtype=torch.int32, device=device), cache)
    assert cache.sum(1).tolist() == [48, 8, 40, 8]
    assert got.tolist() == [6.0 + 1 + 5 + 1 + 6.0] * 8


def failing(op: CustomOp, then: Callable[[], object], *tensors: torch.Tensor) -> None:
    """A call that fails, by itself or, where it isn't waited for, in what comes after."""
    op(*tensors)
    then()


@pytest.mark.parametrize("target", CARD)
def test_a_slot_outside_its_range_is_told_and_writes_no_state(target):
    op, device = cache_op(target), on_device(target)
    cache, x = torch.ones(4, 8, device=device), torch.full((1, 8), 5.0, device=device)
    bad = torch.tensor(9, dtype=torch.int32, device=device)
    for then in (op.wait, lambda: op(x, bad, cache)):
        with pytest.raises(RangeError, match="9"):
            failing(op, then, x, bad, cache)
        assert cache.sum() == 32


@pytest.mark.parametrize("target", CARD)
def test_a_guard_that_fails_is_told(target):
    graph = poot.trace(lambda i: ops.checked(i, 0, 4), (poot.slot((4,), "i32"),))
    op = as_custom_op(compile_on(target, graph))
    bad = torch.tensor([0, 1, 7, 3], dtype=torch.int32, device=on_device(target))
    with pytest.raises(ValidationError, match=r"\[2\] is 7; 1 of 4 failed"):
        failing(op, op.wait, bad)


def test_the_op_obeys_torchs_rules_for_ops():
    """Schema, fake tensors and what torch.compile does with both."""
    tests = ("test_schema", "test_faketensor", "test_aot_dispatch_static")
    torch.library.opcheck(softmax_op("cpu").op, (torch.randn(4, 8),), test_utils=tests)
    args = (torch.ones(1, 8), torch.tensor(1, dtype=torch.int32), torch.ones(4, 8))
    torch.library.opcheck(cache_op("cpu").op, args, test_utils=tests)


def test_a_value_that_is_given_out_twice_is_two_tensors():
    graph = poot.trace(lambda x: (y := x + 1.0, y), (poot.slot((4,), "f32"),))
    one, two = as_custom_op(compile_on("cpu", graph))(torch.zeros(4))
    one += 1
    assert (one.tolist(), two.tolist()) == ([2.0] * 4, [1.0] * 4)


def plain(*shape: int) -> tuple[object, torch.Tensor]:
    return poot.slot(shape, "f32"), torch.arange(float(np.prod(shape))).view(shape)


SLOT, X = plain(2, 4)
ONES = torch.ones(2, 4)


@pytest.mark.parametrize(
    "fn, specs, want, states",
    [
        (lambda x: x, (), X, ()),
        (lambda x: x.reshape(4, 2), (), X.view(4, 2), ()),
        (lambda x, s: (s, s), ("s",), ONES, (ONES,)),
        (lambda x, s: (s + x, s + x), ("s",), ONES + X, (ONES + X,)),
        (lambda x, s, t: (x, (t, s)), ("s", "t"), X, (2 * ONES, ONES)),
    ],
    ids=["a slot", "its view", "a state", "a new state", "states that change places"],
)
def test_outputs_that_are_inputs_are_tensors_of_their_own(fn, specs, want, states):
    graph = poot.trace(fn, (SLOT, *(poot.state((2, 4)) for _ in specs)))
    given = [ONES * (n + 1) for n, _ in enumerate(specs)]
    x = X.clone()
    out = as_custom_op(compile_on("cpu", graph))(x, *given)
    assert torch.equal(out, want)
    assert all(torch.equal(a, b) for a, b in zip(given, states, strict=True))
    out += 1.0
    assert torch.equal(x, X)
    assert all(torch.equal(a, b) for a, b in zip(given, states, strict=True))


def test_a_state_of_bools_lies_otherwise_and_is_refused():
    graph = poot.trace(lambda x, s: (x, ~s), (SLOT, poot.state((4,), "bool")))
    with pytest.raises(BindError, match=r"State 's' bool\[4\] lies in a layout of the device's"):
        as_custom_op(compile_on("cpu", graph))


def test_what_is_empty_stays_empty():
    graph = poot.trace(lambda x: x + 1.0, (poot.slot((0, 4), "f32"),))
    assert as_custom_op(compile_on("cpu", graph))(torch.zeros(0, 4)).shape == (0, 4)


def test_what_shares_memory_with_a_state_is_refused():
    cache = torch.ones(4, 8)
    op = cache_op("cpu")
    with pytest.raises(BindError, match="share memory, and one of them is written"):
        op._run.run({"x": cache[:1], "pos": torch.tensor(0, dtype=torch.int32)}, {"cache": cache})


def test_an_op_is_called_with_the_programs_names():
    op = cache_op("cpu")
    with pytest.raises(
        BindError, match=r"takes x, pos, cache: missing \['pos', 'cache'\], unknown"
    ):
        op(torch.ones(1, 8), other=torch.ones(1))
    with pytest.raises(BindError, match=r"given twice \['x'\]"):
        op(torch.ones(1, 8), torch.tensor(0), torch.ones(4, 8), x=torch.ones(1, 8))
    with pytest.raises(BindError, match="takes 3 tensors: got 4"):
        op(*[torch.ones(1)] * 4)


def test_an_op_without_a_tensor_is_refused():
    graph = poot.trace(lambda w: w + 1.0, (poot.weight((4,)),))
    with pytest.raises(BackendError, match="takes no tensor"):
        as_custom_op(compile_on("cpu", graph), {"w": np.ones(4, np.float32)})


def test_names_are_torchs_own_for_nested_arguments():
    graph = poot.trace(lambda p: p["a"] + p["b"], ({k: poot.slot((4,), "f32") for k in "ab"},))
    op = as_custom_op(compile_on("cpu", graph), name="of_a_pair")
    assert op.names == ("p.a", "p.b")
    out = torch.ops.poot.of_a_pair(torch.ones(4), torch.ones(4))
    assert out.tolist() == [2.0] * 4


@pytest.mark.cuda
@pytest.mark.parametrize("make", ["softmax", "cache"])
def test_a_cuda_graph_that_torch_captures_holds_the_op(make):
    device = torch.device("cuda", 0)
    op = softmax_op("cuda") if make == "softmax" else cache_op("cuda")
    x = torch.randn(4, 8, device=device)
    row, pos = torch.ones(1, 8, device=device), torch.zeros((), dtype=torch.int32, device=device)
    cache = torch.zeros(4, 8, device=device)

    def model():
        if make == "softmax":
            return op(x * 2.0)["y"] + 1.0
        return op(row * 2.0, pos, cache) + 1.0

    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        model()
    torch.cuda.synchronize()
    cache.zero_()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = model()
    for n in range(4):
        x.copy_(torch.randn(4, 8, device=device))
        row.fill_(float(n))
        pos.fill_(n)
        graph.replay()
        if make == "softmax":
            torch.testing.assert_close(out, want(2.0 * x) + 1.0, atol=1e-5, rtol=0)
        else:
            op.wait()
            assert out.tolist() == [1.0 + n * (n + 1)] * 8
    if make == "cache":
        before = cache.clone()
        pos.fill_(4)
        graph.replay()
        with pytest.raises(RangeError, match="4"):
            op.wait()
        assert torch.equal(cache, before)


@pytest.mark.cuda
@pytest.mark.filterwarnings(
    "default:The CUDA Graph is empty:UserWarning"
)  # torch captures nothing first
def test_inductors_own_graphs_hold_the_op():
    op = softmax_op("cuda")
    compiled = torch.compile(lambda x: op(x * 2.0)["y"] + 1.0, mode="reduce-overhead")
    for _ in range(4):
        x = torch.randn(4, 8, device="cuda")
        torch.testing.assert_close(compiled(x), want(2.0 * x) + 1.0, atol=1e-5, rtol=0)
