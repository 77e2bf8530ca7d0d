"""The recorder: whose line, which constants, and when it is open."""

from __future__ import annotations

import numpy as np
import pytest

from poot.errors import TraceError, TypeRuleError
from poot.ops.record import Recorder, current, device_bytes, here, recording, refuse


def test_here_is_the_callers_line():
    assert here() == f"{__file__}:{test_here_is_the_callers_line.__code__.co_firstlineno + 1}"


def test_a_refusal_says_op_rule_values_remedy_and_line():
    with pytest.raises(TypeRuleError) as error:
        refuse("take", "an index", "Write one", index=3, axis=1)
    assert error.value.message == "take needs an index: index=3, axis=1. Write one"
    assert error.value.loc.startswith(__file__)
    with pytest.raises(TraceError, match=r"^trace needs specs\n"):
        refuse("trace", "specs", error=TraceError)


def test_equal_arrays_are_one_constant():
    recorder = Recorder()
    a, b = np.zeros(3, np.float32), np.zeros(3, np.int32)
    first = recorder.const_array(a, "add")
    assert recorder.const_array(a, "add") is first
    assert recorder.const_array(a.copy(), "add") is first
    assert recorder.const_array(b, "add") is not first
    assert [i.name for i in recorder.builder.inputs] == ["const#0", "const#1"]


def test_a_constants_bytes_are_read_at_its_first_use():
    recorder = Recorder()
    array = np.zeros(3, np.float32)
    entry = recorder.const_array(array, "add")
    array[:] = 1
    assert recorder.const_array(array, "add") is entry
    assert entry.storage.data == bytes(12)


def test_bytes_are_row_major_and_int64_narrows_where_it_fits():
    assert device_bytes(np.arange(6).reshape(2, 3).T, "add") == (
        "i32",
        np.asarray([0, 3, 1, 4, 2, 5], np.int32).tobytes(),
    )
    assert device_bytes(np.asarray([True, False]), "add") == ("bool", b"\x01\x00")
    with pytest.raises(TypeRuleError, match=r"an int64 array that fits i32: .*largest=2147483648"):
        device_bytes(np.asarray([0, 2**31]), "add")
    with pytest.raises(TypeRuleError, match=r"an array of a dtype among .*dtype=float64. Write"):
        device_bytes(np.zeros(2), "add")
    assert device_bytes(np.zeros(0, np.int64), "add") == ("i32", b"")


def test_a_recorder_is_current_while_it_is_open():
    with recording() as outer:
        assert current("iota") is outer
        with recording() as inner:
            assert current("iota") is inner
        assert not inner.is_open
        assert current("iota") is outer
    with pytest.raises(TraceError, match="iota needs a trace in progress"):
        current("iota")


def test_an_error_closes_the_recorder():
    with pytest.raises(KeyError), recording() as recorder:
        raise KeyError
    assert not recorder.is_open
    with pytest.raises(TraceError):
        current("iota")
