"""`torch.compile(..., backend="poot")`."""

from __future__ import annotations

import logging
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import nn

import poot.torch
from poot.errors import CapabilityError, TraceError
from poot.frontends.torch import part
from poot.frontends.torch.backend import Backend
from poot.frontends.torch.backend import poot as poot_backend
from poot.frontends.torch.partition import Left


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


def test_a_graph_of_any_size_keeps_its_lines_and_its_constants():
    def fn(x: torch.Tensor) -> torch.Tensor:
        y = x[:, torch.tensor([2, 0])].softmax(-1)
        return torch.cummax(y, 0)[0] * x.shape[0]

    backend = Backend()
    compiled = torch.compile(fn, backend=backend, dynamic=True)
    for n in (3, 5, 3):
        close(compiled(draw(n, 4)), fn(draw(n, 4)))
    (left,) = backend.left
    assert (left.op, left.loc.rpartition(":")[0]) == ("aten.cummax.default", __file__)


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


@pytest.mark.parametrize("dtype", [torch.int32, torch.bfloat16, torch.bool])
def test_results_have_the_dtype_that_torch_says(dtype: torch.dtype):
    def fn(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return x.to(dtype), x.t().to(dtype)

    got, want = torch.compile(fn, backend=Backend())(draw(3, 4) * 5), fn(draw(3, 4) * 5)
    for a, b in zip(got, want, strict=True):
        assert (a.dtype, a.stride()) == (b.dtype, b.stride())
        assert torch.equal(a, b)


def test_integers_of_64_bits_are_never_wrapped(caplog: pytest.LogCaptureFixture):
    backend = Backend()
    far = torch.compile(lambda a: a * 1000003, backend=backend)
    assert far(torch.tensor([100000])).tolist() == [100000300000]
    assert [n.op for n in backend.left] == ["aten.mul.Tensor"]
    assert backend.left[0].loc.startswith(f"{__file__}:")
    near = torch.compile(lambda a: (a + 1, a.argmax()), backend=backend)
    for value in (5, 2**40, -(2**31), 2**31 - 1, 6):
        got, at = near(torch.tensor([value]))
        assert (got.tolist(), at.item()) == ([value + 1], 0)
    (made,) = backend.parts
    assert made.handed == 3
    assert caplog.text.count("a call is torch's, not poot's") == 1


def test_an_index_out_of_bounds_raises_what_torch_raises():
    backend = Backend()
    words = torch.compile(nn.Embedding(10, 4), backend=backend)
    table = torch.compile(lambda x, i: x[i], backend=backend)
    for bad in (10, -1):
        with pytest.raises(IndexError, match="out of range"):
            words(torch.tensor([bad]))
    with pytest.raises(IndexError, match="index 9 is out of bounds"):
        table(draw(3), torch.tensor([9]))
    assert words(torch.tensor([1])).shape == (1, 4)
    assert table(draw(3), torch.tensor([-1])) == draw(3)[-1]


def test_what_a_target_cannot_do_is_left_to_torch(monkeypatch: pytest.MonkeyPatch):
    def refuses(graph: object, target: str) -> None:
        raise CapabilityError("a step asks for too much", "model.py:3")

    monkeypatch.setattr(part, "compile", refuses)
    backend, x = Backend(), draw(3)
    assert torch.equal(torch.compile(lambda x: x * 2 + 1, backend=backend)(x), x * 2 + 1)
    (left,) = backend.left
    assert (left.op, left.loc) == ("a part of 2 calls", "model.py:3")
    assert left.why == "CapabilityError: a step asks for too much"


def test_a_target_that_is_not_there_is_an_error():
    with pytest.raises(Exception, match="there is no device 'nothing'"):
        torch.compile(lambda x: x * 2, backend=Backend("nothing"))(draw(3))


def test_tensors_that_lie_elsewhere_leave_the_graph_to_torch():
    backend = Backend()
    out = torch.compile(lambda x: x * 2, backend=backend)(torch.zeros(3, device="meta"))
    assert out.device.type == "meta"
    assert backend.left == [Left("the graph", "its tensors are on meta", "")]


def test_a_model_of_inference_mode_is_compiled_and_its_writes_are_seen():
    with torch.inference_mode():
        model, x = nn.Linear(8, 8), draw(3, 8)
        compiled = torch.compile(model, backend=Backend())
        close(compiled(x), model(x))
        model.weight.mul_(3)
        close(compiled(x), model(x))


def test_threads_take_turns_on_one_model():
    model = nn.Linear(8, 8)
    compiled = torch.compile(model, backend=Backend())

    def run(n: int) -> float:
        x = torch.full((4, 8), float(n))
        with torch.no_grad():
            return max(float((compiled(x) - model(x)).abs().max()) for _ in range(10))

    run(0)
    with ThreadPoolExecutor(4) as pool:
        assert max(pool.map(run, range(8))) < 1e-5


def test_threads_that_meet_new_sizes_are_in_no_others_way():
    model = nn.Linear(8, 8)
    compiled = torch.compile(model, backend=Backend(sizes=1), dynamic=True)

    def run(n: int) -> float:
        with torch.no_grad():
            given = [draw(4 + 5 * n + k % 5, 8) for k in range(10)]
            return max(float((compiled(x) - model(x)).abs().max()) for x in given)

    run(0)
    with ThreadPoolExecutor(4) as pool:
        assert max(pool.map(run, range(1, 5))) < 1e-5


def test_weights_stay_bound_for_the_sizes_used_last():
    backend, model = Backend(sizes=2), nn.Linear(8, 8)
    compiled = torch.compile(model, backend=backend, dynamic=True)
    for n in (3, 4, 5, 4, 6):
        x = draw(n, 8)
        with torch.no_grad():
            close(compiled(x), model(x))
    assert [p.bound is not None for p in backend.parts] == [False, True, False, True]
    with torch.no_grad():
        close(compiled(draw(3, 8)), model(draw(3, 8)))
    assert [p.bound is not None for p in backend.parts] == [True, False, False, True]
    for bad in (0, True, "4"):
        with pytest.raises(TraceError, match="takes sizes from 1 on"):
            Backend(sizes=bad)  # pyright: ignore[reportArgumentType]


@pytest.mark.cuda
def test_a_model_on_a_card_runs_there():
    backend, model = Backend(), Block().eval().cuda()
    compiled = torch.compile(model, backend=backend)
    stream = torch.cuda.Stream()
    with torch.no_grad(), torch.cuda.stream(stream):
        for n in (5, 7, 5):
            x = draw(1, n, 16).cuda()
            close(compiled(x), model(x))
        model.out.weight.mul_(3)
        close(compiled(x), model(x))
        words, ids = nn.Embedding(10, 4).cuda(), torch.tensor([3, 1], device="cuda")
        taken = torch.compile(lambda i: words(i + 1), backend=backend)
        assert torch.equal(taken(ids), words(ids + 1))
    assert backend.left == []
    assert {p.target for p in backend.programs} == {"cuda:0"}


def test_the_name_is_known_and_has_the_option_target():
    assert "poot" in torch._dynamo.list_backends()
    compiled = torch.compile(lambda x: x * 2, backend="poot", options={"target": "oracle"})
    close(compiled(draw(3)), draw(3) * 2)
    with pytest.raises(TraceError, match="the options target, weights, sizes: got speed"):
        poot_backend(None, [], options={"speed": 11})


def test_the_module_of_poot_has_the_backend():
    assert poot.torch.Backend is Backend


CONSTANTS = {
    "integers": lambda a: a + torch.tensor([1, 2, 3, 4]),
    "past 32 bits": lambda a: a + torch.tensor([2**40, 2, 3, 4]),
    "a scalar": lambda a: torch.minimum(a, torch.tensor(2**33)),
    "f64": lambda a: a.float() * torch.tensor([1.0, 2, 3, 4], dtype=torch.float64),
    "bools": lambda a: torch.where(torch.tensor([True, False, True, False]), a, 0),
    "computed": lambda a: (torch.arange(3000) ** 3)[a],
}


@pytest.mark.parametrize("kind", CONSTANTS)
def test_constants_in_a_graph_are_read_as_they_are(kind: str):
    torch._dynamo.reset()
    fn, a = CONSTANTS[kind], torch.tensor([1, 2, 3, 4])
    torch.testing.assert_close(torch.compile(fn, backend=Backend("cpu"))(a), fn(a))
