"""The driver answers its protocol."""

from __future__ import annotations

import inspect

from poot.backends.vulkan.api import Shader, VulkanApi
from poot.backends.vulkan.driver import VulkanDriver

OWN = ("is_lost", "messages")  # set where a driver is made


def members() -> dict[str, object]:
    return {n: m for n, m in vars(VulkanApi).items() if not n.startswith("_")}


def test_the_driver_has_every_member():
    assert [n for n in members() if not hasattr(VulkanDriver, n) and n not in OWN] == []


def test_every_method_takes_what_the_protocol_says():
    methods = {n: m for n, m in members().items() if inspect.isfunction(m)}
    assert len(methods) > 8
    for name, method in methods.items():
        theirs = inspect.signature(getattr(VulkanDriver, name))
        assert list(theirs.parameters) == list(inspect.signature(method).parameters), name


def test_records_are_equal_by_content():
    assert Shader("k", b"", 2, False, None) == Shader("k", b"", 2, False, None)
