"""The package's two functions."""

from __future__ import annotations

import pytest

from poot.backends import vulkan
from poot.errors import BackendUnavailable
from tests.support.gpu import gpu


def test_what_is_found_can_be_opened():
    gpu("vulkan")
    for at, (description, limits) in enumerate(vulkan.found()):
        device = vulkan.open_device(at)
        assert (device.description, device.limits) == (description, limits)
        device.close()


def test_an_index_that_is_not_there_is_refused():
    gpu("vulkan")
    with pytest.raises(BackendUnavailable, match="no vulkan:-1"):
        vulkan.open_device(-1)
