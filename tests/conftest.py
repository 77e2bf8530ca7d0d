"""Every run: which targets must be there, what may skip, and what is counted."""

from __future__ import annotations

import pytest

from poot.knobs import knobs

pytest.register_assert_rewrite("tests.support")

from tests.support.targets import Targets  # noqa: E402 - after its asserts are rewritten

pytest_plugins = ["pytester"]


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(Targets(knobs().require), "poot-targets")
