from __future__ import annotations

from pathlib import Path

import pytest

from poot.errors import KnobError
from poot.knobs import NAMES, knobs


def test_an_empty_environment_gives_the_defaults():
    got = knobs({})
    assert (got.target, got.check, got.dump, got.threads, got.require) == ("", False, None, 0, ())
    assert got.cache_dir.name == "poot"


def test_each_knob_is_read_by_its_name():
    got = knobs(
        {
            "POOT_TARGET": "vulkan:0",
            "POOT_CHECK": "1",
            "POOT_DUMP": "/tmp/dump",
            "POOT_CACHE_DIR": "/tmp/cache",
            "POOT_THREADS": "3",
            "POOT_CUDA_PROVIDER": "pycuda",
            "POOT_REQUIRE": "wgpu, cpu,,wgpu",
        }
    )
    assert (got.target, got.check, got.threads) == ("vulkan:0", True, 3)
    assert got.cuda_provider == "pycuda"
    assert (got.dump, got.cache_dir) == (Path("/tmp/dump"), Path("/tmp/cache"))
    assert got.require == ("cpu", "wgpu")


def test_the_process_environment_is_the_default(monkeypatch):
    monkeypatch.setenv("POOT_THREADS", "7")
    assert knobs().threads == 7


@pytest.mark.parametrize(
    "name, text",
    [
        ("POOT_CHECK", "yes"),
        ("POOT_THREADS", "0"),
        ("POOT_THREADS", "two"),
        ("POOT_THREADS", "4097"),
        ("POOT_THREADS", "\N{SUPERSCRIPT TWO}"),
    ],
)
def test_a_value_that_does_not_fit_is_refused_by_name(name, text):
    with pytest.raises(KnobError, match=f"{name} needs") as e:
        knobs({name: text})
    assert repr(text) in e.value.message


def test_a_misspelt_knob_is_refused_and_the_real_ones_named():
    with pytest.raises(KnobError, match=r"POOT_THREAD;.*POOT_THREADS"):
        knobs({"POOT_THREAD": "2"})


def test_there_are_at_most_ten_knobs():
    assert len(NAMES) <= 10
