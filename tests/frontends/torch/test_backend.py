"""`torch.compile(..., backend="poot")`."""

from __future__ import annotations

import logging

import pytest
import torch
from torch import nn

import poot.torch
from poot.errors import TraceError
from poot.frontends.torch.backend import Backend
from poot.frontends.torch.backend import poot as poot_backend


class Block(nn.Module):
    """One layer of attention, causal, and a feed-forward."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.qkv, self.out = nn.Linear(16, 48), nn.Linear(16, 16)
        self.norm = nn.LayerNorm(16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        b, n, _ = x.shape
        q, k, v = self.qkv(self.norm(x)).view(b, n, 3, 2, 8).permute(2, 0, 3, 1, 4).unbind(0)
        y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return x + self.out(y.transpose(1, 2).reshape(b, n, 16))


def draw(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(1))


def close(a: torch.Tensor, b: torch.Tensor) -> None:
    torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)


@pytest.fixture(autouse=True)
def _fresh() -> None:
    torch._dynamo.reset()


def test_a_module_is_compiled_whole_and_its_attention_fused():
    backend, model, x = Backend(), Block().eval(), draw(2, 5, 16)
    compiled = torch.compile(model, backend=backend)
    with torch.no_grad():
        close(compiled(x), model(x))
        close(compiled(x * 2), model(x * 2))
    (program,) = backend.programs
    assert backend.left == []
    assert "causal 0" in program.explain()


def test_other_sizes_are_compiled_for_themselves():
    backend, model = Backend(), Block().eval()
    compiled = torch.compile(model, backend=backend)
    with torch.no_grad():
        for n in (5, 7, 6, 7):
            close(compiled(draw(1, n, 16)), model(draw(1, n, 16)))
    assert len(backend.programs) == 3


def test_weights_that_changed_are_bound_again():
    backend, model, x = Backend(), Block().eval(), draw(1, 4, 16)
    compiled = torch.compile(model, backend=backend)
    with torch.no_grad():
        close(compiled(x), model(x))
        model.out.weight.mul_(3)
        close(compiled(x), model(x))
        model.out.weight.copy_(draw(16, 16))
        close(compiled(x), model(x))
    assert len(backend.programs) == 1


def test_gradients_stay_torchs():
    model, x = Block(), draw(1, 4, 16)
    torch.compile(model, backend=Backend())(x).square().sum().backward()
    got = model.out.weight.grad
    model.zero_grad()
    model(x).square().sum().backward()
    assert got is not None
    assert model.out.weight.grad is not None
    close(got, model.out.weight.grad)


def test_what_there_is_no_row_for_is_left_to_torch():
    def fn(x: torch.Tensor) -> torch.Tensor:
        return torch.cummax(x.exp(), 1)[0] + x.sum()

    backend, x = Backend(), draw(3, 4)
    close(torch.compile(fn, backend=backend)(x), fn(x))
    assert [n.op for n in backend.left] == ["aten.cummax.default"]
    assert len(backend.programs) >= 1


def test_a_graph_of_which_nothing_is_compiled_says_so(caplog: pytest.LogCaptureFixture):
    with caplog.at_level(logging.WARNING, "poot"):
        torch.compile(lambda x: torch.cummax(x, 1)[0], backend=Backend())(draw(3, 4))
    assert "compiled nothing" in caplog.text


@pytest.mark.parametrize("dtype", [torch.int64, torch.bfloat16, torch.bool])
def test_results_have_the_dtype_that_torch_says(dtype: torch.dtype):
    def fn(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return x.to(dtype), x.t().to(dtype)

    got, want = torch.compile(fn, backend=Backend())(draw(3, 4) * 5), fn(draw(3, 4) * 5)
    for a, b in zip(got, want, strict=True):
        assert (a.dtype, a.stride()) == (b.dtype, b.stride())
        assert torch.equal(a, b)


def test_the_name_is_known_and_has_the_option_target():
    assert "poot" in torch._dynamo.list_backends()
    compiled = torch.compile(lambda x: x * 2, backend="poot", options={"target": "oracle"})
    close(compiled(draw(3)), draw(3) * 2)
    with pytest.raises(TraceError, match="the option target: got speed"):
        poot_backend(None, [], options={"speed": 11})


def test_the_module_of_poot_has_the_backend():
    assert poot.torch.Backend is Backend
