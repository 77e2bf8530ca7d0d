"""Whether weights are still what they were."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import nn

from poot.errors import TraceError
from poot.frontends.torch import watch
from poot.frontends.torch.backend import Backend
from poot.frontends.torch.watch import MODES, Watch, digest, memory_of


def weight(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0))


def by_numpy(w: torch.Tensor) -> None:
    w.detach().numpy()[0, 0] += 1


def by_version(w: torch.Tensor) -> None:
    w[0, 1] += 1


WRITES: dict[str, Callable[[torch.Tensor], object]] = {
    "data": lambda w: w.data.mul_(3),
    "sign": lambda w: w.data.mul_(-1),
    "rows change places": lambda w: w.data.copy_(w.data.flip(0)),
    "one element by numpy": by_numpy,
    "one element": by_version,
}


@pytest.mark.parametrize("kind", WRITES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_write_is_seen_however_it_was_made(kind: str, dtype: torch.dtype):
    if dtype == torch.bfloat16 and kind == "one element by numpy":
        return
    w = weight(300, 40).to(dtype)
    seen = Watch({"w": w, "b": weight(7)})
    assert seen.changed({"w": w}) == ""
    WRITES[kind](w)
    assert seen.changed({"w": w}) == "w"


def test_a_weight_that_is_replaced_is_seen_also_where_nothing_is_looked_at():
    w = weight(4, 4)
    seen = Watch({"w": w}, "versions")
    assert seen.changed({"w": w}) == ""
    assert seen.changed({"w": w.clone()}) == "w"
    assert seen.changed({"w": w.T}) == "w"
    by_numpy(w)
    assert seen.changed({"w": w}) == ""


def test_many_bytes_are_looked_at_in_turns_and_a_late_find_says_so(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    monkeypatch.setattr(watch, "FEW", 1 << 20)
    w = weight(1024, 5120)  # 20 MB
    seen, whole = Watch({"w": w}), Watch({"w": w}, "read")
    w.detach().numpy()[700, 301] += 1  # between the points of the sample
    assert whole.changed({"w": w}) == "w"
    found = [n for n in range(watch.TURNS) if seen.changed({"w": w})]
    assert len(found) == 1
    assert "weight w was written where torch doesn't see it" in caplog.text
    w.data.mul_(2)  # of a write to all of it the sample says so at once
    assert Watch({"w": w}).changed({"w": w}) == ""
    again = Watch({"w": w})
    w.data.mul_(2)
    assert again.changed({"w": w}) == "w"


def test_a_tensor_of_inference_mode_is_looked_at_whole(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(watch, "FEW", 0)
    with torch.inference_mode():
        w = weight(1024, 1024)
        for mode in MODES:
            seen = Watch({"w": w, "v": weight(2048, 1024)}, mode)
            w[600, 301] += 1
            assert seen.changed({"w": w}) == "w"


def test_memory_is_from_the_first_element_to_the_last():
    w = weight(8, 9)
    assert memory_of(w[2:4, 1:3]).size == 11 * 4
    assert memory_of(w.T).size == 72 * 4
    assert memory_of(w[:0]).size == 0
    assert memory_of(torch.zeros(3, device="meta")).size == 0
    assert memory_of(w).ctypes.data == w.data_ptr()


@pytest.mark.parametrize("nbytes", [0, 1, 8, 32768, 32769, 100000])
def test_bytes_that_differ_have_another_digest(nbytes: int):
    raw = np.random.default_rng(0).integers(0, 256, nbytes, np.uint8)
    first = digest(raw)
    assert digest(raw.copy()) == first
    for at in {0, nbytes // 2, nbytes - 1} & set(range(nbytes)):
        other = raw.copy()
        other[at] ^= 128
        assert digest(other) != first


@pytest.mark.parametrize("mode", ["watched", "read"])
def test_two_rows_of_a_permutation_that_change_places_are_seen(mode: str):
    w = torch.eye(256)
    seen = Watch({"w": w}, mode)
    assert seen.changed({"w": w}) == ""
    w.data[[1, 33]] = w.data[[33, 1]]
    assert seen.changed({"w": w}) == "w"


def test_a_compiled_model_goes_by_what_its_weights_are():
    torch._dynamo.reset()
    backend, model, x = Backend(), nn.Linear(8, 8), torch.ones(3, 8)
    compiled = torch.compile(model, backend=backend)
    with torch.no_grad():
        for write in (lambda: None, lambda: model.weight.data.mul_(3.0)):
            write()
            torch.testing.assert_close(compiled(x), model(x))
        model.weight.detach().numpy()[:] = 0.5
        torch.testing.assert_close(compiled(x), model(x))
        backend.rebind()
        torch.testing.assert_close(compiled(x), model(x))
    assert len(backend.programs) == 1


def test_another_mode_is_refused():
    with pytest.raises(TraceError, match="weights are read, watched, versions: got 'often'"):
        Backend(weights="often")
