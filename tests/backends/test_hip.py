"""The hip backend by its package."""

from __future__ import annotations

import pytest

from poot.backends import hip
from poot.errors import BackendUnavailable
from tests.support.targets import missing_hardware


@pytest.mark.amd
def test_a_device_is_found_and_opens():
    rows = hip.found()
    device = hip.open_device(0)
    assert device.limits == rows[0][1]
    device.close()


@pytest.mark.skipif(missing_hardware("amd") is None, reason="this machine has an AMD GPU")
def test_without_a_device_the_reason_says_what_to_install():
    for act in (hip.found, hip.open_device):
        with pytest.raises(BackendUnavailable, match=r"install ROCm|pip install 'poot\[hip\]'"):
            act()
