"""Recorded entry points in tests that run with every provider."""

from __future__ import annotations

import functools
from collections.abc import Callable

import pytest

from poot.backends.cuda.device import CudaDevice
from poot.errors import CaptureUnavailable
from poot.session import Session


def captured_or_refused(session: Session, entry: str = "main") -> Callable[..., object]:
    """The recorded entry point. Where the provider has no graphs, `session.step` of it, after the
    refusal has named the extra: recorded or not, a step gives and refuses the same."""
    device = session.runner.device
    if isinstance(device, CudaDevice) and not device.driver.has_graphs:
        with pytest.raises(CaptureUnavailable, match=r"poot\[cuda\]"):
            session.capture(entry)
        return functools.partial(session.step, entry)
    return session.capture(entry)
