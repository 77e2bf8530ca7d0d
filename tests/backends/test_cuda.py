"""How a CUDA device is chosen: by provider, by number, by architecture; the page's examples."""

import re
import runpy
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from poot.backends import cuda
from poot.backends.cuda.provider import Driver, Facts, stream_handle
from poot.errors import BackendUnavailable
from poot.limits import PROFILES, profile
from tests.support.ptx_device import PtxDriver
from tests.support.sources import ROOT


class Fake:
    """A provider that finds these devices, or says why there are none."""

    def __init__(self, name: str, rows: list[Facts] | str) -> None:
        self.name = name
        self._rows = rows

    def facts(self) -> list[Facts]:
        if isinstance(self._rows, str):
            raise BackendUnavailable(self._rows)
        return self._rows


@pytest.fixture(autouse=True)
def no_provider_is_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the environment of the run says."""
    monkeypatch.delenv("POOT_CUDA_PROVIDER", raising=False)


def test_every_providers_reason_is_said_where_none_finds_a_device(monkeypatch):
    rows = (Fake("one", "no driver"), Fake("two", []))
    monkeypatch.setattr(cuda, "PROVIDERS", rows)
    with pytest.raises(BackendUnavailable, match="no driver; two finds no device"):
        cuda.found()


def test_an_unknown_provider_is_refused_with_the_list(monkeypatch):
    monkeypatch.setattr(cuda, "PROVIDERS", (Fake("one", "no driver"),))
    with pytest.raises(BackendUnavailable, match="no provider 'three'; providers: one"):
        cuda.open_device(provider="three")


def test_other_limits_than_the_drivers_are_refused():
    with pytest.raises(BackendUnavailable, match="asked for oracle"):
        cuda.open_device(limits=replace(PROFILES["oracle"]))


EXAMPLES = re.compile(r"^```python cuda\n(.*?)^```$", re.MULTILINE | re.DOTALL)
STREAM = 0x5EA


class OnNumpy:
    """A provider of one device whose driver runs PTX on numpy, on the stream that it is given."""

    name = "PTX on numpy"

    def facts(self) -> list[Facts]:
        return [Facts("PTX on numpy", profile("h200"))]

    def open(self, index: int, stream: object | None) -> Driver:
        return PtxDriver(stream=7 if stream is None else stream_handle(stream))


class Stream:
    """torch's, as far as a driver looks at one."""

    cuda_stream = STREAM


def run_examples(folder: Path, capsys: pytest.CaptureFixture[str]) -> dict[str, object]:
    """Runs the page's examples as one program; its names."""
    code = "".join(EXAMPLES.findall((ROOT / "docs/cuda.md").read_text()))
    said = [line.removeprefix("#> ") for line in code.splitlines() if line.startswith("#> ")]
    assert said
    (folder / "page.py").write_text(code)
    names = runpy.run_path(str(folder / "page.py"))
    assert capsys.readouterr().out.splitlines() == said
    return names


def test_the_pages_examples_run_on_numpy(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(cuda, "PROVIDERS", (OnNumpy(),))
    monkeypatch.setattr(torch.cuda, "current_stream", Stream)
    device = run_examples(tmp_path, capsys)["device"]
    assert isinstance(device, cuda.CudaDevice)
    assert device.stream == STREAM


@pytest.mark.cuda
def test_the_pages_examples_run_on_a_card(tmp_path, capsys):
    run_examples(tmp_path, capsys)
