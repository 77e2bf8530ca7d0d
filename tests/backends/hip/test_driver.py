"""Every returned tuple is checked; without ROCm there is a reason."""

from __future__ import annotations

from enum import IntEnum
from types import SimpleNamespace

import pytest

from poot.backends.hip import driver
from poot.errors import BackendError, BackendUnavailable, DeviceLost, OutOfDeviceMemory


class Status(IntEnum):
    hipSuccess = 0
    hipErrorInvalidValue = 1
    hipErrorOutOfMemory = 2
    hipErrorNoDevice = 100
    hipErrorIllegalAddress = 700


def runtime(monkeypatch: pytest.MonkeyPatch, **calls: object) -> None:
    made = SimpleNamespace(hipError_t=Status, **calls)
    monkeypatch.setattr(driver, "hip", made)
    monkeypatch.setattr(driver, "MISSING", "")


@pytest.mark.parametrize(
    "status, error",
    [
        (Status.hipErrorInvalidValue, BackendError),
        (Status.hipErrorOutOfMemory, OutOfDeviceMemory),
        (Status.hipErrorIllegalAddress, DeviceLost),
    ],
)
def test_a_status_becomes_an_error_with_its_name(monkeypatch, status: Status, error: type):
    runtime(monkeypatch, hipSetDevice=lambda index: (status,))
    with pytest.raises(error, match=f"hipSetDevice: {status.name}") as caught:
        driver.HipApi(0)
    assert type(caught.value) is error


def test_a_bare_status_is_checked_too(monkeypatch):
    runtime(monkeypatch, hipSetDevice=lambda index: Status.hipErrorInvalidValue)
    with pytest.raises(BackendError, match="hipSetDevice: hipErrorInvalidValue"):
        driver.HipApi(0)


def test_without_the_bindings_there_is_a_reason(monkeypatch):
    monkeypatch.setattr(driver, "MISSING", "no bindings: install them")
    with pytest.raises(BackendUnavailable, match="no bindings: install them"):
        driver.device_facts()


def test_without_the_library_it_is_said_what_to_install(monkeypatch):
    def missing(flags: int) -> object:
        raise RuntimeError("failed to dlopen 'libamdhip64.so'")

    runtime(monkeypatch, hipInit=missing)
    with pytest.raises(BackendUnavailable, match=r"libamdhip64\.so.*: install ROCm 6 or newer"):
        driver.device_facts()


@pytest.mark.parametrize("count", [(Status.hipErrorNoDevice, 0), (Status.hipSuccess, 0)])
def test_a_runtime_without_a_device_is_unavailable(monkeypatch, count: tuple[object, ...]):
    runtime(
        monkeypatch, hipInit=lambda flags: (Status.hipSuccess,), hipGetDeviceCount=lambda: count
    )
    with pytest.raises(BackendUnavailable, match="finds no GPU"):
        driver.connect(0)
