"""Safetensors from strangers: each lie costs a FormatError that names it."""

from __future__ import annotations

import json
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from poot.errors import FormatError
from poot.llm.tensor_files import INDEX, ONE, read_json, read_tensor_files

PLAIN = {"a": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}}


def write(path: Path, header: object, data: bytes = bytes(24)) -> Path:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)
    return path.parent


def test_tensors_come_in_their_own_dtype_from_disk(tmp_path: Path):
    halves = np.arange(4).astype(ml_dtypes.bfloat16)
    rows = {"b": {"dtype": "BF16", "shape": [2, 2], "data_offsets": [0, 8]}, "__metadata__": {}}
    files = read_tensor_files(write(tmp_path / ONE, rows, halves.tobytes()))
    np.testing.assert_array_equal(files.array("b"), halves.reshape(2, 2))
    assert (files.dtype("b"), files.array("b").flags.writeable) == ("bf16", False)
    assert (files.path, files.paths) == (tmp_path, (tmp_path / ONE,))


def row(**edits: object) -> dict[str, object]:
    return {"a": PLAIN["a"] | edits}


@pytest.mark.parametrize(
    "header, words",
    [
        (b"{x", "is no JSON that poot reads"),
        (b"[]", "holds no JSON object"),
        (b"[" * 100000, "is no JSON that poot reads"),
        (b'{"a": 1, "a": 2}', "key 'a' stands twice"),
        ({"a": 1}, "tensor a has no dtype, shape and data_offsets"),
        (row(shape=[-1, 3]), "tensor a has no dtype, shape and data_offsets"),
        (row(shape=[2.0, 3]), "tensor a has no dtype, shape and data_offsets"),
        (row(shape=[True, 3]), "tensor a has no dtype, shape and data_offsets"),
        (row(data_offsets=[0]), "tensor a has no dtype, shape and data_offsets"),
        (row(dtype="F31"), "tensor a has unknown dtype 'F31'"),
        (row(shape=[1] * 5), "tensor a has 5 axes"),
        (row(shape=[2, 4]), r"tensor a \(F32 \[2, 4\]\) takes 32 bytes and has 24"),
        (row(data_offsets=[24, 0]), "takes 24 bytes and has -24"),
        (row(shape=[1 << 40, 1 << 40]), "takes"),
        (row(data_offsets=[24, 48]), "the file has .* truncated or lies"),
        ({**PLAIN, "b": PLAIN["a"]}, "tensor b overlaps tensor a"),
    ],
)
def test_a_header_that_lies_is_refused(header: object, words: str, tmp_path: Path):
    folder = write(tmp_path / ONE, header)
    with pytest.raises(FormatError, match=words):
        read_tensor_files(folder)


def test_every_cut_of_a_file_is_refused(tmp_path: Path):
    whole = (write(tmp_path / ONE, PLAIN) / ONE).read_bytes()
    for length in range(len(whole)):
        (tmp_path / ONE).write_bytes(whole[:length])
        with pytest.raises(FormatError):
            read_tensor_files(tmp_path)


def test_a_length_past_the_file_is_refused_before_it_is_read(tmp_path: Path):
    (tmp_path / ONE).write_bytes((1 << 62).to_bytes(8, "little") + b"{}")
    with pytest.raises(FormatError, match="truncated or no safetensors file"):
        read_tensor_files(tmp_path)


def test_a_folder_without_weights_is_refused(tmp_path: Path):
    with pytest.raises(FormatError, match="there is no such file"):
        read_tensor_files(tmp_path)


def test_shards_are_read_together_by_their_index(tmp_path: Path):
    write(tmp_path / "x.safetensors", PLAIN)
    write(tmp_path / "y.safetensors", {"b": PLAIN["a"]})
    placed = {"a": "x.safetensors", "b": "y.safetensors"}
    (tmp_path / INDEX).write_text(json.dumps({"weight_map": placed}))
    files = read_tensor_files(tmp_path)
    assert {name: t.file for name, t in files.tensors.items()} == placed


@pytest.mark.parametrize(
    "place",
    [
        "../x.safetensors",
        "/etc/passwd",
        "a/x.safetensors",
        "..",
        "",
        "x.bin",
        3,
        "..\\x.safetensors",
    ],
)
def test_an_index_names_files_of_its_own_folder_only(place: object, tmp_path: Path):
    write(tmp_path / "x.safetensors", PLAIN)
    (tmp_path / INDEX).write_text(json.dumps({"weight_map": {"a": place}}))
    with pytest.raises(FormatError, match=r"places tensor a in .* of its own folder"):
        read_tensor_files(tmp_path)


@pytest.mark.parametrize(
    "placed, words",
    [
        ({}, "has no weight_map"),
        ({"a": "gone.safetensors"}, "gone.safetensors: there is no such file"),
        ({"a": "x.safetensors", "z": "x.safetensors"}, "places tensor z in x.safetensors"),
        ({"z": "x.safetensors"}, "holds tensor a, which .* does not place there"),
    ],
)
def test_an_index_and_its_files_must_agree(placed: dict[str, str], words: str, tmp_path: Path):
    write(tmp_path / "x.safetensors", PLAIN)
    (tmp_path / INDEX).write_text(json.dumps({"weight_map": placed}))
    with pytest.raises(FormatError, match=words):
        read_tensor_files(tmp_path)


def test_a_weight_of_a_dtype_that_poot_has_no_weights_of_is_named(tmp_path: Path):
    folder = write(tmp_path / ONE, row(dtype="I32"))
    with pytest.raises(FormatError, match="tensor a is I32; poot reads weights of F32, F16, BF16"):
        read_tensor_files(folder).array("a")
    with pytest.raises(FormatError, match="there is no tensor q"):
        read_tensor_files(folder).info("q")


def test_a_nan_is_found_by_name_and_index(tmp_path: Path):
    values = np.zeros((2, 3), np.float32)
    values[1, 2] = np.nan
    with pytest.raises(FormatError, match=r"tensor a \(F32\) holds a NaN or Inf at index \(1, 2\)"):
        read_tensor_files(write(tmp_path / ONE, PLAIN, values.tobytes())).check_finite()
    read_tensor_files(write(tmp_path / ONE, PLAIN)).check_finite()


def test_codes_are_read_as_they_are_and_those_that_may_be_nan_are_looked_at(tmp_path: Path):
    codes = np.arange(24, dtype=np.uint8)
    kinds = {"a": ("F8_E4M3", 8), "b": ("U8", 8), "c": ("I32", 2)}
    rows = {
        name: {"dtype": kind, "shape": [count], "data_offsets": [8 * n, 8 * n + 8]}
        for n, (name, (kind, count)) in enumerate(kinds.items())
    }
    files = read_tensor_files(write(tmp_path / ONE, rows, codes.tobytes()))
    files.check_finite()
    np.testing.assert_array_equal(files.raw("a").view(np.uint8), codes[:8])
    np.testing.assert_array_equal(files.raw("b"), codes[8:16])
    np.testing.assert_array_equal(files.raw("c").view(np.uint8), codes[16:])
    codes[3] = 0x7F
    with pytest.raises(FormatError, match=r"tensor a \(F8_E4M3\) holds a NaN or Inf at index \(3,"):
        read_tensor_files(write(tmp_path / ONE, rows, codes.tobytes())).check_finite()
    wide = {"a": PLAIN["a"] | {"dtype": "F64", "shape": [3]}}
    with pytest.raises(FormatError, match="tensor a is F64, which poot reads none of"):
        read_tensor_files(write(tmp_path / ONE, wide)).raw("a")


def test_a_json_file_past_its_limit_is_not_read(tmp_path: Path):
    (tmp_path / "c.json").write_text('{"a": 1}')
    assert read_json(tmp_path / "c.json", 8) == {"a": 1}
    with pytest.raises(FormatError, match="is larger than 7 bytes"):
        read_json(tmp_path / "c.json", 7)
