"""The package's two functions."""

from __future__ import annotations

import pytest

from poot.backends import wgpu
from poot.errors import BackendUnavailable
from tests.support.gpu import gpu


def test_what_is_found_can_be_opened():
    gpu("wgpu")
    for at, (description, limits) in enumerate(wgpu.found()):
        device = wgpu.open_device(at)
        assert (device.description, device.limits) == (description, limits)
        device.close()


def test_an_index_that_is_not_there_is_refused():
    gpu("wgpu")
    with pytest.raises(BackendUnavailable, match="no wgpu:-1"):
        wgpu.open_device(-1)
