"""Matrices in codes: what each method's tensors stand for, and files that are not what they say."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers.integrations.mxfp4 import convert_moe_packed_tensors

from poot.errors import FormatError
from poot.llm.models.parts.coded import (
    Int4,
    Matrix,
    check_coded,
    coded_array,
    coded_spec,
    decoded,
    has_codes,
    stacked,
    taken,
    values_of,
)
from poot.llm.models.parts.kinds import Coding
from poot.llm.tensor_files import TensorFiles, read_tensor_files
from tests.support.hf_coded import KINDS, Parts, gptq, save
from tests.support.traced import normal, value

CODINGS = {
    "fp8": Coding("fp8", (20, 4)),
    "fp8_rows": Coding("fp8_rows"),
    "awq": Coding("awq", (1, 16)),
    "gptq": Coding("gptq", (1, 16), zero=1),
    "mxfp4": Coding("mxfp4"),
}
SHAPES = {"mxfp4": (3, 64, 40)}


def made(method: str, folder: Path) -> tuple[TensorFiles, tuple[int, ...], np.ndarray, Parts]:
    """A file with one tensor "x.weight", its shape and its values."""
    shape = SHAPES.get(method, (24, 48))
    parts, values = KINDS[method].code("x.weight", normal(5, *shape))
    save(parts, folder)
    return read_tensor_files(folder), shape, values, parts


def traced(matrix: Matrix[np.ndarray]) -> np.ndarray:
    parts = [getattr(matrix, f.name) for f in fields(matrix)]
    return value(lambda *given: decoded(type(matrix)(*given)), *parts)


@pytest.mark.parametrize("method", KINDS)
def test_codes_stand_for_their_values_in_a_graph_and_on_the_host(method: str, tmp_path: Path):
    files, shape, values, parts = made(method, tmp_path)
    coding = CODINGS[method]
    assert has_codes(files, coding, "x.weight")
    assert check_coded(files, coding, "x.weight", shape) == set(parts)
    matrix = coded_array(files, coding, "x.weight", shape)
    np.testing.assert_array_equal(values_of(matrix), values)
    np.testing.assert_allclose(traced(matrix), values, rtol=1e-6)
    specs = coded_spec(coding, shape)
    for field in fields(matrix):
        held, spec = getattr(matrix, field.name), getattr(specs, field.name)
        assert held.shape == spec.type.shape


def test_mxfp4_is_read_as_transformers_reads_it(tmp_path: Path):
    rng = np.random.default_rng(0)
    blocks = rng.integers(0, 256, (2, 24, 2, 16), np.uint8)
    scales = rng.integers(100, 150, (2, 24, 2), np.uint8)
    save({"x_blocks": blocks, "x_scales": scales}, tmp_path)
    matrix = coded_array(read_tensor_files(tmp_path), Coding("mxfp4"), "x", (2, 64, 24))
    want = convert_moe_packed_tensors(
        torch.from_numpy(blocks), torch.from_numpy(scales), dtype=torch.float32
    )
    np.testing.assert_array_equal(values_of(matrix), want.numpy())
    np.testing.assert_array_equal(traced(matrix), want.numpy())


def test_the_second_version_of_gptq_stores_zeros_as_they_are(tmp_path: Path):
    parts, values = gptq("x.weight", normal(1, 16, 32), zero=0)
    save(parts, tmp_path)
    files = read_tensor_files(tmp_path)
    matrix = coded_array(files, Coding("gptq", (1, 16), zero=0), "x.weight", (16, 32))
    np.testing.assert_array_equal(values_of(matrix), values)


def test_a_group_of_a_whole_row_is_one_group(tmp_path: Path):
    parts, values = gptq("x.weight", normal(1, 16, 32), size=32)
    save(parts, tmp_path)
    coding = Coding("gptq", (1, 1 << 20), zero=1)
    files = read_tensor_files(tmp_path)
    check_coded(files, coding, "x.weight", (16, 32))
    matrix = coded_array(files, coding, "x.weight", (16, 32))
    np.testing.assert_array_equal(values_of(matrix), values)


def test_stacks_are_stacked_and_taken_part_by_part():
    rng = np.random.default_rng(0)
    each = [
        Int4(rng.integers(0, 1 << 32, (4, 2), np.uint32), np.ones((4, 1), np.float16),
             np.full((4, 1), n, np.float16)) for n in range(3)
    ]  # fmt: skip
    whole = stacked(list(each))
    assert isinstance(whole, Int4)
    ids = np.array([2, 0], np.int32)
    got = value(
        lambda codes, scales, zeros, at: decoded(taken(Int4(codes, scales, zeros), at)),
        whole.codes, whole.scales, whole.zeros, ids,
    )  # fmt: skip
    np.testing.assert_array_equal(got, np.stack([values_of(each[2]), values_of(each[0])]))


@pytest.mark.parametrize("method", KINDS)
def test_each_part_is_held_to_its_dtype_and_shape(method: str, tmp_path: Path):
    _, shape, _, parts = made(method, tmp_path)
    for name, array in parts.items():
        for wrong in (array[:-1], np.zeros(array.shape, np.int64)):
            save({**parts, name: wrong}, tmp_path)
            files = read_tensor_files(tmp_path)
            with pytest.raises(FormatError, match=rf"tensor {name} is .*; config.json makes it"):
                check_coded(files, CODINGS[method], "x.weight", shape)
        save({n: x for n, x in parts.items() if n != name}, tmp_path)
        with pytest.raises(FormatError, match=f"there is no tensor {name}"):
            check_coded(read_tensor_files(tmp_path), CODINGS[method], "x.weight", shape)


def test_what_does_not_divide_is_refused(tmp_path: Path):
    files = made("fp8", tmp_path)[0]
    for coding, shape in (
        (Coding("fp8", (16, 32)), (24, 48)),
        (Coding("awq", (1, 20)), (24, 48)),
        (Coding("awq", (1, 12)), (20, 48)),
        (Coding("mxfp4"), (3, 48, 40)),
    ):
        with pytest.raises(FormatError, match="is in codes, which need"):
            check_coded(files, coding, "x.weight", shape)


def test_columns_ordered_by_activation_are_refused(tmp_path: Path):
    _, shape, _, parts = made("gptq", tmp_path)
    save({**parts, "x.g_idx": parts["x.g_idx"][::-1]}, tmp_path)
    with pytest.raises(FormatError, match=r"x\.g_idx orders columns by activation"):
        coded_array(read_tensor_files(tmp_path), CODINGS["gptq"], "x.weight", shape)


@pytest.mark.parametrize("scale, what", [(255, "NaN"), (253, "2\\^126")])
def test_a_scale_of_mxfp4_that_makes_values_infinite_is_refused(
    scale: int, what: str, tmp_path: Path
):
    blocks = np.full((2, 24, 2, 16), 0x77, np.uint8)
    scales = np.full((2, 24, 2), 252, np.uint8)
    for held in (252, scale):
        scales[1, 3, 1] = held
        save({"x_blocks": blocks, "x_scales": scales}, tmp_path)
        files = read_tensor_files(tmp_path)
        if held == 252:
            matrix = coded_array(files, Coding("mxfp4"), "x", (2, 64, 24))
            assert np.isfinite(values_of(matrix)).all()
            continue
        with pytest.raises(FormatError, match=f"x_scales holds a scale of {what}"):
            coded_array(files, Coding("mxfp4"), "x", (2, 64, 24))
