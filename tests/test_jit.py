"""jit: the stages in one call."""

import numpy as np
import pytest

import poot
from poot import ops
from poot.errors import TraceError


def test_a_function_of_arrays_runs():
    @poot.jit(target="oracle")
    def scaled(x, by):
        return {"y": x * by}

    x = np.arange(4, dtype=np.float32)
    np.testing.assert_array_equal(scaled(x, 2.0)["y"], 2 * x)
    np.testing.assert_array_equal(scaled(by=3.0, x=x)["y"], 3 * x)
    np.testing.assert_array_equal(scaled(x[:2], 2.0)["y"], 2 * x[:2])


def test_nested_arguments_are_slots_by_dotted_name():
    fn = poot.jit(target="oracle")(lambda pair: ops.maximum(pair[0], pair[1]))
    a, b = np.float32([1, 5]), np.float32([4, 2])
    np.testing.assert_array_equal(fn((a, b)), [4, 5])


def test_an_array_of_a_dtype_that_poot_lacks_is_refused():
    with pytest.raises(TraceError, match="complex64; cast it"):
        poot.jit(target="oracle")(lambda x: x)(np.zeros(2, np.complex64))


def test_arguments_that_take_anything_are_refused_when_it_is_made():
    with pytest.raises(TraceError, match="takes any"):
        poot.jit(lambda **a: a["p"])
    with pytest.raises(TraceError, match="other than device_outputs"):
        poot.jit(lambda device_outputs: device_outputs)
