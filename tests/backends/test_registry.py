"""Devices by name, and what is said of those that aren't there."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace

import pytest

from poot.backends import registry
from poot.backends.registry import auto_target, devices, open_device
from poot.errors import BackendUnavailable
from poot.limits import DeviceLimits, profile
from tests.support.gpu import gpu


def test_every_backend_is_listed_with_a_device_or_a_reason():
    rows = devices()
    assert {r.name.partition(":")[0] for r in rows} == {*registry.BACKENDS, "oracle"}
    assert all((r.limits is None) == (r.reason is not None) for r in rows)
    assert rows[-1].name == "oracle"


@pytest.mark.parametrize("target", ["vulkan", "wgpu"])
def test_a_device_opens_by_name_with_and_without_an_index(target):
    gpu(target)
    for name in (target, f"{target}:0"):
        device = open_device(name)
        row = next(r for r in devices() if r.name == f"{target}:0")
        assert device.limits == row.limits
        assert device.description == row.description
        device.close()


@pytest.mark.parametrize("name", ["cuda:x", "tpu", "", "vulkan:", "vulkan:-1", "vulkan:1:2"])
def test_an_unknown_name_lists_what_there_is(name):
    with pytest.raises(BackendUnavailable, match=f"no device '{name}'; there are: .*oracle"):
        open_device(name)


@pytest.mark.parametrize("target", ["vulkan", "wgpu"])
def test_an_index_that_is_not_there_says_how_many_are(target):
    gpu(target)
    with pytest.raises(BackendUnavailable, match=rf"no {target}:99: .* finds \d+"):
        open_device(f"{target}:99")


@pytest.mark.parametrize("target", ["vulkan", "wgpu"])
def test_a_device_can_be_asked_for_with_a_profiles_limits(target):
    trips = gpu(target).limits.loop_trips  # what the driver cuts short, whatever was asked for
    device = open_device(f"{target}:0/webgpu-baseline")
    assert device.limits == replace(profile("webgpu-baseline"), loop_trips=trips)
    device.close()
    for name in ("h200", "none"):
        with pytest.raises(BackendUnavailable, match=f"{name} asks|no limits profile '{name}'"):
            open_device(f"{target}/{name}")


def test_the_cpu_opens_and_keeps_its_own_limits():
    device = open_device("cpu")
    assert device.limits == next(r.limits for r in devices() if r.name == "cpu:0")
    device.close()
    with pytest.raises(BackendUnavailable, match="own limits alone: asked for cpu-avx2"):
        open_device("cpu/cpu-avx2")


def test_the_oracle_has_no_device():
    with pytest.raises(BackendUnavailable, match="runs in numpy"):
        open_device("oracle")


class Stand:
    """A backend with devices of the given limits."""

    def __init__(self, *limits: DeviceLimits) -> None:
        self.limits = limits

    def found(self) -> list[tuple[str, DeviceLimits]]:
        if not self.limits:
            raise BackendUnavailable("not here")
        return [(limits.name, limits) for limits in self.limits]


HARD, SOFT = profile("rdna3"), profile("lavapipe")


@pytest.mark.parametrize(
    "there, best",
    [
        ({"vulkan": (SOFT, HARD), "wgpu": (HARD,), "cpu": (HARD,)}, "vulkan:1"),
        ({"vulkan": (SOFT,), "wgpu": (HARD,), "cpu": (HARD,)}, "wgpu:0"),
        ({"vulkan": (SOFT,), "wgpu": (SOFT,), "cpu": (HARD,)}, "cpu:0"),
        ({"vulkan": (SOFT,), "wgpu": (SOFT,), "cpu": ()}, "vulkan:0"),
        ({"cuda": (HARD,), "hip": (HARD,), "vulkan": (HARD,)}, "cuda:0"),
        ({"vulkan": ()}, "oracle"),
    ],
)
def test_auto_takes_hardware_before_the_cpu_and_software_gpus_after(monkeypatch, there, best):
    stands = {name: Stand(*limits) for name, limits in there.items()}
    monkeypatch.setattr(registry, "BACKENDS", {name: name for name in there})
    monkeypatch.setattr(registry, "_backend", stands.__getitem__)
    assert auto_target() == best


CHILD = """
from poot.backends.registry import devices, open_device
from poot.errors import BackendUnavailable
for row in devices():
    print(row.name, row.reason)
for name in ("vulkan", "wgpu"):
    try:
        open_device(name)
    except BackendUnavailable as e:
        print("refused", e.message)
"""


def test_without_a_driver_the_reason_names_the_package_to_install():
    env = os.environ | {
        "VK_DRIVER_FILES": "/nonexistent",
        "VK_ICD_FILENAMES": "/nonexistent",
        "PYTHONPATH": os.pathsep.join(sys.path),
    }
    done = subprocess.run([sys.executable, "-c", CHILD], env=env, capture_output=True, timeout=60)
    assert done.returncode == 0, done.stderr.decode()
    lines = done.stdout.decode().splitlines()
    missing = [line for line in lines if "apt-get install mesa-vulkan-drivers" in line]
    assert [line.split(" finds ")[0] for line in missing] == [
        "vulkan the Vulkan loader",
        "wgpu wgpu",
        "refused the Vulkan loader",
        "refused wgpu",
    ]
    assert "oracle None" in lines
