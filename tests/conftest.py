"""Every run: which targets must be there, what may skip, and what is counted."""

from __future__ import annotations

import os
import shutil
import tempfile

import pytest
from hypothesis import HealthCheck, settings

from poot.knobs import knobs

pytest.register_assert_rewrite("tests.support")

from tests.support.targets import Targets  # noqa: E402 - after its asserts are rewritten

pytest_plugins = ["pytester"]


def pytest_configure(config: pytest.Config) -> None:
    require = knobs().require
    if "POOT_CACHE_DIR" not in os.environ:
        # Kernels of another checkout, or of this one before a change, are never taken from disk.
        os.environ["POOT_CACHE_DIR"] = made = tempfile.mkdtemp(prefix="poot-tests-")
        config.add_cleanup(lambda: shutil.rmtree(made, ignore_errors=True))
        config.add_cleanup(lambda: os.environ.pop("POOT_CACHE_DIR", None))
    config.pluginmanager.register(Targets(require), "poot-targets")
    # Where a target is required the examples are the same at each run; elsewhere they vary.
    settings.register_profile(
        "poot",
        deadline=None,
        print_blob=True,
        derandomize=bool(require),
        suppress_health_check=[HealthCheck.too_slow],
    )
    settings.load_profile("poot")
