"""`from_torch`: small modules, and what it says of others. Whole models: tests/suites."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import poot
from poot.errors import RangeError, TraceError, UnsupportedOps, ValidationError
from poot.frontends.imported import Imported
from poot.ir.graph import Slot
from tests.support.everywhere import compile_on


def imported(module: nn.Module, *args: Any, **options: Any) -> Imported:
    return poot.from_torch(torch.export.export(module.eval(), args), **options)


def slots(got: Imported) -> dict[str, Slot]:
    return {i.name: i.storage for i in got.graph.inputs if isinstance(i.storage, Slot)}


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(11, 8)
        self.norm = nn.LayerNorm(8)
        self.out = nn.Linear(8, 5)

    def forward(self, ids: torch.Tensor, shift: torch.Tensor) -> torch.Tensor:
        x = self.words(ids.view(-1)).reshape(*ids.shape, 8) + shift
        return self.out(nn.functional.gelu(self.norm(x))).softmax(-1)


IDS, SHIFT = torch.tensor([[1, 0, 10]]), torch.full((8,), 0.5)


def test_a_module_gives_what_torch_gives():
    torch.manual_seed(0)
    model = Net().eval()
    got = imported(model, IDS, SHIFT)
    session = got.bind(poot.compile(got.graph, "oracle"))
    want = model(IDS, SHIFT).detach().numpy()
    np.testing.assert_allclose(session.step(ids=IDS, shift=SHIFT), want, rtol=1e-5, atol=1e-6)


def test_weights_have_the_names_of_the_model():
    want = {"words.weight", "norm.weight", "norm.bias", "out.weight", "out.bias"}
    assert set(imported(Net(), IDS, SHIFT).weights) == want


def test_what_indexes_an_embedding_is_checked_at_the_bind():
    got = imported(Net(), IDS, SHIFT)
    assert slots(got) == {"ids": Slot("user", (0, 11)), "shift": Slot()}
    session = got.bind(poot.compile(got.graph, "oracle"))
    with pytest.raises(RangeError, match=r"'ids' needs values in 0..10: \[0, 2\] is 11"):
        session.step(ids=np.array([[1, 0, 11]]), shift=SHIFT)


def test_a_range_may_be_declared():
    class Row(nn.Module):
        def forward(self, x: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
            return x.index_select(0, at)

    got = imported(Row(), torch.zeros(4, 2), torch.tensor([1]), ranges={"at": (0, 4)})
    assert slots(got)["at"] == Slot("pos", (0, 4))
    assert got.graph.validations == ()
    guarded = imported(Row(), torch.zeros(4, 2), torch.tensor([1]))
    assert len(guarded.graph.validations) == 1


def test_a_range_of_what_is_no_integer_input_is_refused():
    with pytest.raises(TraceError, match="ranges of integer inputs, ids: got shift"):
        imported(Net(), IDS, SHIFT, ranges={"shift": (0, 4)})


def test_every_call_without_a_row_is_listed_with_its_line():
    class Strange(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = torch.linalg.qr(x)[0]
            return torch.fft.fft(y).real + y.sort(0)[0].cummax(0)[0]

    with pytest.raises(UnsupportedOps) as e:
        imported(Strange(), torch.zeros(3, 3))
    found = {u.op: u for u in e.value.ops}
    assert {"aten.linalg_qr.default", "aten.cummax.default"} <= found.keys()
    lines = Path(__file__).read_text().splitlines()
    for op, text in (("aten.linalg_qr.default", "linalg.qr"), ("aten.cummax.default", "cummax")):
        path, line = found[op].loc.rsplit(":", 1)
        assert path == __file__
        assert text in lines[int(line) - 1]


class Cache(nn.Module):
    """A decode step over a cache of fixed capacity, as a module holds it."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv = nn.Linear(8, 24, bias=False)
        self.register_buffer("keys", torch.zeros(1, 2, 16, 4))
        self.register_buffer("values", torch.zeros(1, 2, 16, 4))

    def forward(self, x: torch.Tensor, pos: torch.Tensor) -> torch.Tensor:
        q, k, v = self.qkv(x).view(1, 1, 3, 2, 4).permute(2, 0, 3, 1, 4).unbind(0)
        self.keys.index_copy_(2, pos, k)
        self.values.index_copy_(2, pos, v)
        seen = torch.arange(16)[None] <= pos[:, None]
        return nn.functional.scaled_dot_product_attention(q, self.keys, self.values, seen)


@pytest.mark.parametrize("ranges", [None, {"pos": (0, 16)}])
@pytest.mark.parametrize("target", ["oracle", "cpu"])
def test_a_cache_in_buffers_is_state(target: str, ranges: dict[str, tuple[int, int]] | None):
    torch.manual_seed(1)
    model = Cache().eval()
    got = imported(model, torch.zeros(1, 1, 8), torch.tensor([3]), ranges=ranges)
    assert len(got.graph.states) == 2
    program = poot.compile(got.graph, target)
    session = got.bind(program)
    draw = np.random.default_rng(0)
    with torch.no_grad():
        model.keys.zero_()
        model.values.zero_()
        for n in range(5):
            x = draw.standard_normal((1, 1, 8)).astype(np.float32)
            want = model(torch.from_numpy(x), torch.tensor([n])).numpy()
            np.testing.assert_allclose(session.step(x=x, pos=[n]), want, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(session.state["keys"], model.keys.numpy(), rtol=1e-5, atol=1e-5)
    if target == "cpu":
        assert ("len i32[1]" in program.explain()) == (ranges is not None)


def test_sixteen_bit_weights_stay_so():
    torch.manual_seed(2)
    model = Net().eval().bfloat16()
    got = imported(model, IDS, SHIFT.bfloat16())
    assert {str(w.dtype) for w in got.weights.values()} == {"bfloat16"}
    session = got.bind(poot.compile(got.graph, "oracle"))
    shift = got.weights["norm.bias"].dtype.type(0.5) * np.ones(8, got.weights["norm.bias"].dtype)
    want = model(IDS, SHIFT.bfloat16()).detach().float().numpy()
    out = np.asarray(session.step(ids=IDS, shift=shift)).astype(np.float32)
    np.testing.assert_allclose(out, want, rtol=2e-2, atol=2e-2)


@pytest.mark.parametrize("kind", ["bool", "ones", "infinite"])
def test_a_buffer_that_holds_a_triangle_makes_attention_causal(kind):
    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            ones = torch.tril(torch.ones(16, 16)).view(1, 1, 16, 16)
            mask = torch.where(ones == 1, 0.0, float("-inf"))
            kinds = {"bool": ones.bool(), "ones": ones, "infinite": mask}
            self.register_buffer("mask", kinds[kind])

        def forward(self, x):
            n = x.shape[2]
            mask, scores = self.mask[:, :, :n, :n], x @ x.mT
            if kind == "infinite":
                return (scores + mask).softmax(-1) @ x
            return scores.masked_fill(mask == 0, float("-inf")).softmax(-1) @ x

    x = torch.randn(1, 2, 6, 8, generator=torch.Generator().manual_seed(0))
    model = Model()
    imported = poot.from_torch(torch.export.export(model, (x,)))
    program = poot.compile(imported.graph, "cpu")
    assert "causal 0" in program.explain()
    np.testing.assert_allclose(imported.bind(program).step(x=x), model(x).numpy(), atol=1e-5)


class Wide(nn.Module):
    """Arithmetic of int64 that is given."""

    def __init__(self, by: int) -> None:
        super().__init__()
        self.by = by

    def forward(self, i: torch.Tensor) -> torch.Tensor:
        return i * self.by


def test_int64_that_may_pass_32_bits_is_refused_by_op_and_line():
    program = torch.export.export(Wide(1000003), (torch.tensor([1]),))
    with pytest.raises(UnsupportedOps, match=r"aten\.mul\.Tensor: .*64 bits.*; at .*test_program"):
        poot.from_torch(program)
    graph = poot.from_torch(program, ranges={"i": (0, 2000)}).graph
    assert graph.inputs[0].storage == Slot("pos", (0, 2000))


def test_int64_that_is_given_has_the_range_by_which_its_arithmetic_fits():
    got = poot.from_torch(torch.export.export(Wide(3), (torch.tensor([1]),)))
    assert got.graph.inputs[0].storage == Slot("user", (-(2**24), 2**24))
    session = got.bind(compile_on("cpu", got.graph))
    assert session.step(i=[5]).tolist() == [15]
    with pytest.raises(RangeError, match="i"):
        session.step(i=[2**24])


class Counts(nn.Module):
    """A counter of int64 as a State."""

    def __init__(self, first: int) -> None:
        super().__init__()
        self.register_buffer("n", torch.tensor(first))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.n.add_(1)
        return x + self.n


def test_a_state_of_int64_is_guarded_where_it_is_counted_with():
    got = poot.from_torch(torch.export.export(Counts(2**24 - 1), (torch.zeros(1),)))
    session = got.bind(compile_on("cpu", got.graph))
    session.step(x=np.zeros(1, np.float32))
    with pytest.raises(ValidationError, match="16777216"):
        session.step(x=np.zeros(1, np.float32))
    assert session.state["n"] == 2**24


def test_a_graph_of_its_own_is_a_call_that_is_listed_with_its_line():
    class Either(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.cond(x.sum() > 0, lambda x: x + 1, lambda x: x - 1, (x,))

    program = torch.export.export(Either(), (torch.ones(2),))
    with pytest.raises(UnsupportedOps, match=r"cond.*; at .*test_program\.py:\d+"):
        poot.from_torch(program)


def test_an_input_of_64_bit_floats_is_refused_with_what_helps():
    program = torch.export.export(Wide(2), (torch.ones(2).double(),))
    with pytest.raises(TraceError, match=r"'i' is a value of float64.* Convert it to float32"):
        poot.from_torch(program)
