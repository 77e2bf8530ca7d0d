"""How a CUDA device is chosen: by provider, by number, by architecture."""

from dataclasses import replace

import pytest

from poot.backends import cuda
from poot.backends.cuda.provider import Facts
from poot.errors import BackendUnavailable
from poot.limits import PROFILES


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
