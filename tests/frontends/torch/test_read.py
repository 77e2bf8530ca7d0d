"""Exported programs and fx graphs as foreign programs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from poot.errors import TraceError
from poot.frontends.foreign import Foreign, Ref
from poot.frontends.torch.decompose import decomposed
from poot.frontends.torch.read import line_of, read_exported, read_graph, type_of
from poot.ir.graph import Const, Slot, State, TensorType, Weight


def exported(module: nn.Module, *args: Any, **options: Any) -> torch.export.ExportedProgram:
    return torch.export.export(module.eval(), args, **options)


def read(module: nn.Module, *args: Any) -> Foreign:
    return read_exported(decomposed(exported(module, *args)))


class Counter(nn.Module):
    """Weights that are tied, a table of integers, a buffer that is written, and one that isn't."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(3, 3, bias=False)
        self.second = nn.Linear(3, 3, bias=False)
        self.second.weight = self.first.weight
        self.register_buffer("order", torch.tensor([2, 0, 1]))
        self.register_buffer("total", torch.ones(3))
        self.register_buffer("scale", torch.tensor([1.0, 2.0, 3.0]))

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        y = self.second(self.first(x))[:, self.order] * self.scale
        self.total.add_(y[0])
        return {"y": y, "n": (self.total + 1, [y.sum()])}


def test_what_the_program_holds_gets_its_storage():
    foreign = read(Counter(), torch.zeros(2, 3))
    storage = {g.name: type(g.storage) for g in foreign.givens}
    assert storage == {
        "first.weight": Weight, "order": Const, "total": State, "scale": Weight, "x": Slot,
    }  # fmt: skip
    assert [name for name, _ in foreign.states] == ["total"]
    held = {g.name: g.array for g in foreign.givens if g.array is not None}
    assert held.keys() == {"first.weight", "total", "scale"}


def test_weights_are_the_models_own_memory():
    model = Counter()
    (weight,) = (g for g in read(model, torch.zeros(2, 3)).givens if g.name == "first.weight")
    assert weight.array is not None
    assert weight.array.ctypes.data == model.first.weight.data_ptr()


def test_results_nest_as_the_module_nests_them():
    outputs = read(Counter(), torch.zeros(2, 3)).outputs
    assert isinstance(outputs, dict)
    assert isinstance(outputs["y"], Ref)
    assert isinstance(outputs["n"], tuple)
    assert isinstance(outputs["n"][1], list)


def test_calls_have_the_line_of_the_module():
    foreign = read(Counter(), torch.zeros(2, 3))
    (line,) = {c.loc for c in foreign.calls if c.op == "aten.index.Tensor"}
    path, number = line.rsplit(":", 1)
    assert path == __file__
    assert "self.order]" in Path(path).read_text().splitlines()[int(number) - 1]


def test_numbers_that_are_given_are_not_inputs():
    class Scaled(nn.Module):
        def forward(self, x: torch.Tensor, by: float, flag: bool) -> torch.Tensor:
            return x * by if flag else x

    foreign = read(Scaled(), torch.zeros(2), 2.0, True)
    assert [g.name for g in foreign.givens] == ["x"]
    assert foreign.calls[0].args[1] == 2.0


def test_an_input_that_is_written_is_a_state():
    class Writes(nn.Module):
        def forward(self, cache: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
            cache[:, 1].copy_(x)
            return cache.sum()

    foreign = read(Writes(), torch.zeros(2, 3), torch.ones(2))
    assert [type(g.storage) for g in foreign.givens] == [State, Slot]
    assert [name for name, _ in foreign.states] == ["cache"]


def test_a_dynamic_extent_is_refused_by_its_name():
    batch = torch.export.Dim("batch", min=2, max=8)
    program = exported(nn.Linear(3, 3), torch.zeros(4, 3), dynamic_shapes=({0: batch},))
    with pytest.raises(TraceError, match=r"input 'input': dimension 0 of .* is dynamic"):
        read_exported(program)


def test_what_is_no_exported_program_is_refused():
    with pytest.raises(TraceError, match=r"needs a torch\.export\.ExportedProgram: got Linear"):
        read_exported(nn.Linear(3, 3))


def test_a_parameter_of_a_dtype_without_a_place_is_named():
    with pytest.raises(TraceError, match="a value of float64"):
        read_exported(exported(nn.Linear(3, 3).double(), torch.zeros(2, 3).double()))


def test_a_call_on_a_dtype_without_a_place_is_a_problem_of_that_call():
    class Wide(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.double().sin().float()

    calls = read(Wide(), torch.zeros(2)).calls
    wanted = {"aten._to_copy.default", "aten.sin.default"}
    assert {c.op for c in calls if "float64" in c.problem} == wanted


def test_a_buffer_with_an_infinity_is_a_constant():
    class Masked(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("mask", torch.tensor([0.0, float("-inf")]))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x + self.mask

    assert [type(g.storage) for g in read(Masked(), torch.zeros(2)).givens] == [Const, Slot]


def _traced(fn: Callable[..., Any], *args: torch.Tensor) -> torch.fx.Graph:
    return torch.fx.experimental.proxy_tensor.make_fx(fn, tracing_mode="fake")(*args).graph


def test_a_graph_without_a_signature_has_weights_by_name():
    graph = _traced(lambda x, w: (x @ w).relu(), torch.zeros(2, 3), torch.zeros(3, 4))
    names = [n.name for n in graph.nodes if n.op == "placeholder"]
    foreign = read_graph(graph, frozenset(names[1:]))
    assert [type(g.storage) for g in foreign.givens] == [Slot, Weight]
    assert [c.op for c in foreign.calls] == ["aten.mm.default", "aten.relu.default"]
    assert isinstance(foreign.outputs, tuple)


def test_a_result_of_several_has_its_parts():
    graph = _traced(lambda x: x.max(1)[1], torch.zeros(2, 3))
    foreign = read_graph(graph, frozenset())
    assert len(foreign.calls[0].results) == 2
    assert foreign.outputs == (foreign.calls[0].results[1],)


def test_the_type_of_a_value_or_why_there_is_none():
    assert type_of(torch.zeros(2, 3, dtype=torch.int64)) == TensorType("i32", (2, 3))
    assert type_of(torch.zeros(2).to(torch.complex64)) == "a value of complex64, which poot has not"


def test_a_line_outside_of_torch_comes_first():
    graph = torch.fx.Graph()
    node = graph.placeholder("x")
    inside = Path(torch.__file__).parent / "nn" / "f.py"
    frames = (
        'File "/a/torch/model.py", line 3, in forward', f'File "{inside}", line 9, in g',
        'File "<eval_with_key>.5", line 2, in forward',
    )  # fmt: skip
    node.meta["stack_trace"] = "\n".join(frames)
    assert line_of(node) == "/a/torch/model.py:3"
    node.meta["stack_trace"] = frames[1]
    assert line_of(node) == f"{inside}:9"
    node.meta["stack_trace"] = None
    assert line_of(node) == ""
