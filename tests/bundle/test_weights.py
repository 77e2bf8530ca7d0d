"""Weights as a device holds them, in a file."""

from __future__ import annotations

import numpy as np
import pytest
from safetensors import safe_open

from poot.bundle.weights import read_weights, weight_residents, write_weights, write_whole
from poot.device_bytes import to_device
from poot.errors import BindError, FormatError
from poot.planner.layouts import pack
from tests.support.bundles import program, weights

pytestmark = pytest.mark.quick


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "w.safetensors"
    write_weights(path, program().lists(), weights(), program().key)
    return path


def test_each_resident_comes_back_packed(file):
    lists = program().lists()
    got = read_weights(file, lists, program().key)
    assert len(got) == len(weight_residents(lists)) == 3
    for r in weight_residents(lists):
        want = to_device(pack(weights()[r.name.split("@")[0]], r.layout), r.type)
        assert got[r.name].tobytes() == want.tobytes()


def test_other_readers_of_safetensors_take_the_file(file):
    with safe_open(file, "numpy") as f:
        assert f.metadata() == {"poot.program": program().key}
        assert "w.c" in f.keys()  # noqa: SIM118 - no dict
        np.testing.assert_array_equal(f.get_tensor("w.c"), weights()["w.c"])


def test_weights_of_another_program_are_refused(file):
    with pytest.raises(BindError, match="holds the weights of program"):
        read_weights(file, program().lists(), "f" * 64)


@pytest.mark.parametrize(
    "spoil",
    [
        lambda d: b"",
        lambda d: d[:7],
        lambda d: b"\xff" * 8 + d[8:],
        lambda d: d[:-40],
        lambda d: d.replace(b'"w.c"', b'"w.x"'),
        lambda d: d.replace(b'"BF16"', b'"F16" '),
        lambda d: d.replace(b"{", b"[", 1),
    ],
)
def test_a_damaged_file_is_refused(file, spoil):
    file.write_bytes(spoil(file.read_bytes()))
    with pytest.raises(FormatError, match=r"w\.safetensors"):
        read_weights(file, program().lists(), program().key)


def test_a_file_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(FormatError, match="can't be read"):
        read_weights(tmp_path / "none", program().lists(), "")


def test_a_write_that_fails_leaves_the_old_file(file):
    def stops():
        yield b"new"
        raise KeyboardInterrupt

    before = file.read_bytes()
    with pytest.raises(KeyboardInterrupt):
        write_whole(file, stops())
    assert file.read_bytes() == before
    assert list(file.parent.iterdir()) == [file]
