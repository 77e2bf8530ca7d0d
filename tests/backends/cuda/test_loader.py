"""A library that is missing is a reason, not an error at import."""

from __future__ import annotations

import sys

import pytest

from poot.backends.cuda.loader import load


def test_a_missing_library_names_its_extra(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "pycuda", None)
    monkeypatch.delitem(sys.modules, "pycuda.driver", raising=False)
    module, why = load("pycuda.driver")
    assert module is None
    assert why.startswith("pycuda is not there (")
    assert why.endswith("pip install 'poot[pycuda]'")


def test_a_library_that_is_there_has_no_reason():
    module, why = load("cuda.bindings.driver")
    assert why == ""
    assert hasattr(module, "cuInit")
