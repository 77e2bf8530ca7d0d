"""Driver results as typed errors, streams as handles, devices as limits."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from poot.backends import cuda
from poot.backends.cuda import provider
from poot.backends.cuda.provider import LOST, facts_of, refuse, stream_handle
from poot.errors import (
    BackendError,
    BackendUnavailable,
    DeviceLost,
    LaunchError,
    OutOfDeviceMemory,
)

H200 = (232448, 1024, 2147483647, 65535, 65535, 132, 9, 0)


@pytest.fixture(autouse=True)
def no_provider_is_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the environment of the run says."""
    monkeypatch.delenv("POOT_CUDA_PROVIDER", raising=False)


@pytest.mark.parametrize("code", LOST)
def test_a_lost_context_says_why_and_what_is_left(code):
    with pytest.raises(DeviceLost) as e:
        refuse(code, "the driver's words", "kernel gemv")
    assert e.value.message.startswith(f"kernel gemv: {LOST[code]} (the driver's words)")
    assert "what is still usable: host arrays" in e.value.message
    assert "Go on in a new process" in e.value.message


def test_other_results_keep_the_drivers_words():
    with pytest.raises(OutOfDeviceMemory, match="64 bytes: the driver has no memory"):
        refuse("OUT_OF_MEMORY", "out of memory", "64 bytes")
    with pytest.raises(LaunchError, match="kernel k: the driver says INVALID_VALUE, bad number"):
        refuse("INVALID_VALUE", "bad number", "kernel k", is_launch=True)
    with pytest.raises(BackendError, match="a copy: the driver says INVALID_VALUE"):
        refuse("INVALID_VALUE", "bad number", "a copy")


class Protocol:
    def __init__(self, answer: object) -> None:
        self.answer = answer

    def __cuda_stream__(self) -> object:
        return self.answer


@pytest.mark.parametrize(
    "stream",
    [17, Protocol((0, 17)), SimpleNamespace(cuda_stream=17), SimpleNamespace(handle=17),
     SimpleNamespace(ptr=17), SimpleNamespace(__cuda_stream__=(0, 17))],
)  # fmt: skip
def test_a_stream_of_any_library_has_a_handle(stream):
    assert stream_handle(stream) == 17


@pytest.mark.parametrize("stream", ["17", None, True, Protocol((1, 17)), Protocol(17)])
def test_what_is_no_stream_is_refused(stream):
    with pytest.raises(BackendError, match="stream"):
        stream_handle(stream)


def test_a_devices_numbers_become_limits():
    facts = facts_of("NVIDIA H200", 1 << 37, H200, 13020, "pycuda")
    limits = facts.limits
    assert facts.description == "NVIDIA H200, CUDA 13.2, pycuda"
    assert (limits.target, limits.arch, limits.subgroup) == ("ptx", "sm_90a", 32)
    assert (limits.workgroup_nbytes, limits.threads, limits.compute_units) == (232448, 1024, 132)
    assert limits.grid == (2147483647, 65535, 65535)
    assert limits.memory_nbytes == limits.buffer_nbytes == 1 << 37


@pytest.mark.parametrize(
    "capability, arch",
    [
        ((8, 0), "sm_80"),
        ((8, 9), "sm_89"),
        ((9, 0), "sm_90a"),
        ((10, 0), "sm_90"),
        ((12, 0), "sm_90"),
        ((7, 5), "sm_75"),
    ],
)
def test_a_later_card_runs_the_code_of_sm_90(capability, arch):
    row = (*H200[:6], *capability)
    assert provider.limits_of("card", 1, row).arch == arch


def test_a_provider_that_is_not_there_is_refused_by_name():
    with pytest.raises(BackendUnavailable, match="no provider 'cupy'; providers: cuda-bindings"):
        cuda.open_device(0, provider="cupy")


class Found:
    def __init__(self, name: str, facts: list[provider.Facts], why: str = "") -> None:
        self.name, self._facts, self._why = name, facts, why

    def facts(self) -> list[provider.Facts]:
        if self._why:
            raise BackendUnavailable(self._why)
        return self._facts

    def open(self, index: int, stream: object) -> object:
        raise AssertionError("nothing is opened")


def test_every_reason_is_said_where_no_provider_finds_a_driver(monkeypatch):
    rows = (Found("one", [], "no libcuda"), Found("two", []))
    monkeypatch.setattr(cuda, "PROVIDERS", rows)
    with pytest.raises(BackendUnavailable, match="no libcuda; two finds no device"):
        cuda.found()


def test_a_card_or_number_that_poot_cannot_use_is_refused(monkeypatch):
    old = facts_of("old card", 1, (*H200[:6], 7, 5), 12000, "one")
    monkeypatch.setattr(cuda, "PROVIDERS", (Found("one", [old]),))
    assert cuda.found()[0][0].startswith("old card")
    with pytest.raises(BackendUnavailable, match=r"old card.* is sm_75: poot needs sm_80"):
        cuda.open_device(0)
    with pytest.raises(BackendUnavailable, match="cuda has 1 devices: there is no cuda:3"):
        cuda.open_device(3)
