"""The GGUF reader: what it reads, and what it refuses."""

from __future__ import annotations

import time
import tracemalloc
from pathlib import Path

import gguf as library
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from poot.errors import FormatError
from poot.llm.gguf_file import read_gguf
from tests.support.gguf_bytes import (
    ARRAY,
    BOOL,
    F32,
    STRING,
    TYPE_F32,
    TYPE_Q4_1,
    U8,
    U32,
    array,
    gguf,
    info,
    key,
    text,
    u32,
    u64,
)

NAME = key("general.name", STRING, text("tiny"))
W = info("w", (32, 2), TYPE_Q4_1, 0)
W_DATA = bytes(range(40)) + bytes(24)
B = info("b", (4,), TYPE_F32, 64)
B_DATA = np.arange(4, dtype=np.float32).tobytes()
VALID = gguf((NAME,), (W, B), W_DATA + B_DATA)
HUGE = 1 << 60

HOSTILE = {
    "an empty file": (b"", "24 bytes"),
    "a bare magic": (b"GGUF", "24 bytes"),
    "another magic": (gguf(magic=b"GGML"), "no GGUF file"),
    "version 1": (gguf(version=1), "version 1"),
    "version 99": (gguf(version=99), "version 99"),
    "a big-endian version": (gguf(version=3 << 24), "big-endian"),
    "2^60 tensors": (gguf((NAME,), (W,), W_DATA, n_infos=HUGE), "number of tensors"),
    "2^64 - 1 tensors": (gguf((), (), n_infos=2**64 - 1), "number of tensors"),
    "more tensors than bytes": (gguf((NAME,), (W,), W_DATA, n_infos=50000), "1600000 bytes"),
    "one tensor too many": (gguf((NAME,), (B,), bytes(200), n_infos=2), "rank|unknown type"),
    "2^60 keys": (gguf((NAME,), (), n_keys=HUGE), "number of metadata keys"),
    "more keys than bytes": (gguf((NAME,), (), n_keys=60000), "780000 bytes"),
    "a key of length 2^60": (gguf((text("k", HUGE),), n_keys=1), "length of a metadata key"),
    "a key past the end": (gguf((text("k", 5000) + bytes(9),), n_keys=1), "5000 bytes"),
    "a key that is no UTF-8": (gguf((key(b"\xff\xfe", U8, b"\0"),)), "not UTF-8"),
    "a key twice": (gguf((NAME, NAME)), "'general.name' stands twice"),
    "a value of an unknown type": (gguf((key("k", 13, b"\0"),)), "'k' has unknown type 13"),
    "a value of length 2^60": (gguf((key("k", STRING, text("v", HUGE)),)), "text of 'k'"),
    "a value of length 2^64 - 1": (gguf((key("k", STRING, u64(2**64 - 1)),)), "text of 'k'"),
    "a value that is no UTF-8": (gguf((key("k", STRING, text(b"a\x80")),)), "'k' is not UTF-8"),
    "a bool of 2": (gguf((key("k", BOOL, b"\2"),)), "'k' is a bool with value 2"),
    "a bool entry of 7": (gguf((array("k", BOOL, 2, b"\1\7"),)), "'k' is a bool with value 7"),
    "an array of 2^60": (gguf((array("k", U32, HUGE, u32(1)),)), "entries of 'k'"),
    "an array past the end": (gguf((array("k", U32, 999, u32(1)),)), "entries of 'k' is 999"),
    "an array whose bytes overflow": (gguf((array("k", U32, 1 << 62, b""),)), "entries of 'k'"),
    "2^20 strings in no bytes": (gguf((array("k", STRING, 1 << 20, b""),)), "8388608 bytes"),
    "a string entry of 2^60": (gguf((array("k", STRING, 1, u64(HUGE)),)), "an entry of 'k'"),
    "an array of arrays": (gguf((array("k", ARRAY, 1, bytes(12)),)), "array of arrays"),
    "an array of an unknown type": (gguf((array("k", 77, 1, b"\0"),)), "entry type 77"),
    "an alignment of 0": (gguf((key("general.alignment", U32, u32(0)),)), "alignment is 0"),
    "an alignment of 33": (gguf((key("general.alignment", U32, u32(33)),)), "alignment is 33"),
    "an alignment of 2^31": (gguf((key("general.alignment", U32, u32(1 << 31)),)), "2147483648"),
    "an alignment in words": (
        gguf((key("general.alignment", STRING, text("32")),)),
        "alignment is '32'",
    ),
    "a float alignment": (gguf((key("general.alignment", F32, bytes(4)),)), "alignment is 0.0"),
    "a name of length 2^60": (gguf((), (text("w", HUGE) + bytes(40),)), "a tensor's name"),
    "a name of 65 bytes": (gguf((), (info("n" * 65, (4,), TYPE_F32, 0),), bytes(16)), "is 65"),
    "rank 0": (gguf((), (info("w", (4,), TYPE_F32, 0, rank=0),), bytes(16)), "rank 0"),
    "rank 5": (gguf((), (info("w", (1,) * 5, TYPE_F32, 0),), bytes(16)), "rank 5"),
    "rank 2^32 - 1": (gguf((), (info("w", (4,), 0, 0, rank=2**32 - 1),), bytes(16)), "rank 42949"),
    "an extent of 0": (gguf((), (info("w", (4, 0), TYPE_F32, 0),), bytes(16)), "above 0"),
    "an extent of 2^63": (gguf((), (info("w", (1 << 63,), TYPE_F32, 0),), bytes(16)), "truncated"),
    "extents whose product wraps to 0": (
        gguf((), (info("w", (1 << 32, 1 << 32), TYPE_F32, 0),), bytes(16)),
        "truncated",
    ),
    "half a block": (gguf((), (info("w", (48,), TYPE_Q4_1, 0),), bytes(64)), "block of 32"),
    "an unknown tensor type": (gguf((), (info("w", (4,), 999, 0),), bytes(16)), "type 999"),
    "a removed tensor type": (gguf((), (info("w", (32,), 4, 0),), bytes(64)), "unknown type 4"),
    "an offset past the end": (gguf((), (info("w", (4,), TYPE_F32, 64),), bytes(16)), "truncated"),
    "an offset of 2^60": (gguf((), (info("w", (4,), TYPE_F32, HUGE),), bytes(16)), "truncated"),
    "an offset that wraps": (
        gguf((), (info("w", (4,), TYPE_F32, 2**64 - 32),), bytes(16)),
        "truncated",
    ),
    "an offset off the alignment": (
        gguf((), (info("w", (4,), TYPE_F32, 4),), bytes(32)),
        "offset 4, no multiple of 32",
    ),
    "a tensor twice": (gguf((), (W, W), W_DATA), "'w' stands twice"),
    "two tensors over each other": (
        gguf((), (W, info("b", (4,), TYPE_F32, 32)), W_DATA),
        "'w' and 'b' overlap",
    ),
    "data cut short": (VALID[:-1], "truncated"),
}


def write(folder: Path, raw: bytes) -> Path:
    path = folder / "model.gguf"
    path.write_bytes(raw)
    return path


def test_a_file_reads_as_it_was_written(tmp_path: Path):
    file = read_gguf(write(tmp_path, VALID))
    assert dict(file.metadata) == {"general.name": "tiny"}
    assert list(file.tensors) == ["w", "b"]
    assert (file.info("w").shape, file.info("w").type, file.info("w").nbytes) == (
        (2, 32),
        "Q4_1",
        40,
    )
    assert file.raw("w").tobytes() == W_DATA[:40]
    assert file.raw("w").shape == (2, 20)
    np.testing.assert_array_equal(file.dequantize("b"), np.arange(4, dtype=np.float32))


def test_every_value_type_reads_as_the_library_wrote_it(tmp_path: Path):
    path = tmp_path / "model.gguf"
    writer = library.GGUFWriter(path, "llama")
    wrote = {
        "u8": (writer.add_uint8, 200),
        "i8": (writer.add_int8, -100),
        "u16": (writer.add_uint16, 60000),
        "i16": (writer.add_int16, -30000),
        "u32": (writer.add_uint32, 4_000_000_000),
        "i32": (writer.add_int32, -2_000_000_000),
        "u64": (writer.add_uint64, 1 << 63),
        "i64": (writer.add_int64, -(1 << 62)),
        "f32": (writer.add_float32, 0.5),
        "f64": (writer.add_float64, 0.1),
        "yes": (writer.add_bool, True),
        "text": (writer.add_string, "naïve\n"),
        "words": (writer.add_array, ["a", "", "é"]),
        "ints": (writer.add_array, [1, -2, 3]),
        "bools": (writer.add_array, [True, False]),
    }
    for name, (add, value) in wrote.items():
        add(name, value)
    rng = np.random.default_rng(0)
    tensors = {"f": rng.standard_normal((3, 64)).astype(np.float32)}
    kinds = {kind: library.GGMLQuantizationType[kind] for kind in ("Q4_1", "Q8_0", "Q4_0", "BF16")}
    writer.add_tensor("f", tensors["f"])
    for kind, code in kinds.items():
        raw = library.quantize(tensors["f"], code)
        writer.add_tensor(kind, raw, raw_dtype=code)
        tensors[kind] = library.dequantize(raw, code)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()

    file = read_gguf(path)
    for name, (_, value) in wrote.items():
        assert file.metadata[name] == (tuple(value) if isinstance(value, list) else value)
        assert type(file.metadata[name]) is (tuple if isinstance(value, list) else type(value))
    for name, values in tensors.items():
        assert file.info(name).shape == (3, 64)
        np.testing.assert_array_equal(file.dequantize(name), values)
    file.check_finite()


@pytest.mark.parametrize("case", HOSTILE)
def test_a_hostile_file_is_refused_by_name_at_once_and_in_little_memory(case: str, tmp_path: Path):
    raw, words = HOSTILE[case]
    path = write(tmp_path, raw)
    tracemalloc.start()
    started = time.perf_counter()
    try:
        with pytest.raises(FormatError, match=words):
            read_gguf(path)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert time.perf_counter() - started < 1.0
    assert peak < 1 << 20


def test_a_file_cut_anywhere_is_refused(tmp_path: Path):
    for stop in range(len(VALID)):
        with pytest.raises(FormatError):
            read_gguf(write(tmp_path, VALID[:stop]))


@settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    edits=st.lists(
        st.tuples(st.integers(0, len(VALID) - 1), st.integers(0, 255)), min_size=1, max_size=4
    )
)
def test_a_file_with_bytes_changed_reads_inside_its_bounds_or_is_refused(
    edits: list[tuple[int, int]], tmp_path: Path
):
    raw = bytearray(VALID)
    for at, byte in edits:
        raw[at] = byte
    try:
        file = read_gguf(write(tmp_path, bytes(raw)))
    except FormatError:
        return
    for name, tensor in file.tensors.items():
        assert len(file.raw(name).tobytes()) == tensor.nbytes


def test_a_path_that_is_no_file_is_refused(tmp_path: Path):
    with pytest.raises(FormatError, match="regular file"):
        read_gguf(tmp_path)
    with pytest.raises(FormatError, match="regular file"):
        read_gguf(tmp_path / "absent.gguf")


def test_a_tensor_that_is_not_there_is_named(tmp_path: Path):
    file = read_gguf(write(tmp_path, VALID))
    with pytest.raises(FormatError, match="no tensor absent"):
        file.raw("absent")


@pytest.mark.parametrize("kind", ["F32", "F16", "BF16", "Q4_1", "Q8_0", "Q4_K"])
@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_a_weight_that_is_no_number_is_found_and_its_tensor_named(
    kind: str, value: float, tmp_path: Path
):
    code = library.GGMLQuantizationType[kind]
    block, nbytes = library.GGML_QUANT_SIZES[code]
    # 4 rows of blocks of zeros; the third row's first scale (or number) is `value`.
    raw = np.zeros((4, 256 // block * nbytes), np.uint8)
    head = {"F32": np.float32(value).tobytes(), "BF16": np.float32(value).tobytes()[2:]}
    bits = head.get(kind, np.float16(value).tobytes())
    raw[2, : len(bits)] = np.frombuffer(bits, np.uint8)
    tables = info("good", (4,), TYPE_F32, 0), info("bad", (256, 4), int(code), 32)
    file = read_gguf(write(tmp_path, gguf((), tables, bytes(32) + raw.tobytes())))
    with pytest.raises(FormatError, match=r"tensor bad .* index \(2, 0\)"):
        file.check_finite()


def test_a_type_without_a_reading_as_f32_is_refused(tmp_path: Path):
    file = read_gguf(write(tmp_path, gguf((), (info("ids", (4,), 26, 0),), bytes(16))))
    with pytest.raises(FormatError, match="ids is I32"):
        file.dequantize("ids")
    file.check_finite()
