"""Packed weights unpack to what the file format's own reader gives, bit for bit."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from gguf import GGMLQuantizationType, dequantize, quantize
from gguf.constants import GGML_QUANT_SIZES

import poot
from poot import ops
from poot.errors import FormatError, TypeRuleError
from tests.support.traced import evaluate, graph_of, normal, value

UNPACKING = {
    "iota",
    "const",
    "mul",
    "sub",
    "add",
    "shl",
    "shr",
    "and",
    "cast",
    "bitcast",
    "reshape",
}


def random_blocks(kind: GGMLQuantizationType, seed: int, *shape: int) -> np.ndarray:
    """Blocks of random codes, with scales and minima that are numbers."""
    per_block, nbytes = GGML_QUANT_SIZES[kind]
    rng = np.random.default_rng(seed)
    rows = (*shape[:-1], shape[-1] // per_block)
    raw = rng.integers(0, 256, (*rows, nbytes), np.uint8)
    count = {GGMLQuantizationType.Q4_1: 2, GGMLQuantizationType.Q8_0: 1}[kind]
    scales = (rng.standard_normal((*rows, count)) * 0.02).astype("<f2")
    raw[..., : 2 * count] = scales.view(np.uint8)
    return raw.reshape(*shape[:-1], -1)


@pytest.mark.parametrize("shape", [(1, 32), (5, 64), (2, 3, 96)])
def test_q4_1_unpacks_as_its_reader_does(shape: tuple[int, ...]):
    raw = random_blocks(GGMLQuantizationType.Q4_1, 0, *shape)
    want = dequantize(raw, GGMLQuantizationType.Q4_1)
    packed = ops.pack_q4_1(raw, shape)
    assert [a.dtype for a in packed] == [np.uint32, np.float16, np.float16]
    assert sum(a.nbytes for a in packed) == raw.nbytes
    got = value(ops.dequant_q4_1, *packed)
    assert got.dtype == np.float32
    np.testing.assert_array_equal(got, want.reshape(shape))
    for again in zip(ops.pack_q4_1(raw.tobytes(), shape), packed, strict=True):
        np.testing.assert_array_equal(*again)


@pytest.mark.parametrize("shape", [(1, 32), (5, 64), (2, 3, 96)])
def test_q8_0_unpacks_as_its_reader_does(shape: tuple[int, ...]):
    raw = random_blocks(GGMLQuantizationType.Q8_0, 0, *shape)
    want = dequantize(raw, GGMLQuantizationType.Q8_0)
    packed = ops.pack_q8_0(raw, shape)
    assert sum(a.nbytes for a in packed) == raw.nbytes
    got = value(ops.dequant_q8_0, *packed)
    np.testing.assert_array_equal(got, want.reshape(shape))


def test_a_quantised_tensor_is_near_what_it_was():
    w = normal(0, 8, 64)
    packed = ops.pack_q8_0(quantize(w, GGMLQuantizationType.Q8_0), w.shape)
    np.testing.assert_allclose(value(ops.dequant_q8_0, *packed), w, atol=0.02)


def test_a_word_holds_consecutive_codes_the_first_lowest():
    codes = np.arange(-4, 4, dtype=np.int8).reshape(1, 8)
    assert [hex(w) for w in ops.pack_int8(codes)[0].tolist()] == ["0xfffefdfc", "0x3020100"]
    block = np.zeros(20, np.uint8)
    block[4:] = [(i + 1) | (15 - i) << 4 for i in range(15)] + [0]
    words, _, _ = ops.pack_q4_1(block, (32,))
    assert hex(words[0]) == "0x87654321"
    assert hex(words[2]) == "0x89abcdef"


def test_gathered_rows_unpack_alone():
    shape = (7, 64)
    raw = random_blocks(GGMLQuantizationType.Q4_1, 1, *shape)
    ids = np.asarray([6, 0, 3], np.int32)

    def fn(codes: object, scales: object, mins: object, ids: object) -> object:
        return ops.dequant_q4_1(*(ops.take(x, ids) for x in (codes, scales, mins)))

    want = dequantize(raw, GGMLQuantizationType.Q4_1)[ids]
    np.testing.assert_array_equal(value(fn, *ops.pack_q4_1(raw, shape), ids), want)


@pytest.mark.parametrize("groups", [1, 2, 8])
def test_int8_has_a_scale_for_each_group(groups: int):
    codes = np.random.default_rng(0).integers(-128, 128, (3, 32)).astype(np.int8)
    scales = np.abs(normal(1, 3, groups))
    want = codes.reshape(3, groups, -1).astype(np.float32) * scales[..., None]
    got = value(ops.dequant_int8, ops.pack_int8(codes), scales)
    np.testing.assert_array_equal(got, want.reshape(3, 32))


def test_fp8_is_its_number_times_its_scale():
    codes = normal(0, 3, 8).astype(ml_dtypes.float8_e4m3fn)
    scales = np.abs(normal(1, 3, 1))
    got = value(ops.dequant_fp8, codes, scales)
    np.testing.assert_array_equal(got, codes.astype(np.float32) * scales)


@pytest.mark.parametrize("groups", [1, 2, 8])
def test_int4_takes_a_groups_zero_before_its_scale(groups: int):
    codes = np.random.default_rng(0).integers(0, 16, (3, 64)).astype(np.uint8)
    scales, zeros = normal(1, 3, groups), np.round(normal(2, 3, groups) * 4)
    apart = codes.reshape(3, groups, -1).astype(np.float32)
    got = value(ops.dequant_int4, ops.pack_int4(codes), scales, zeros)
    np.testing.assert_array_equal(
        got, ((apart - zeros[..., None]) * scales[..., None]).reshape(3, 64)
    )


def test_mxfp4_has_every_value_of_its_format():
    codes = np.tile(np.arange(16, dtype=np.uint8), 4).reshape(1, 64)
    halves = np.array([[0.5, 2.0**-60]], np.float32)
    sizes = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6], np.float32)
    sixteen = np.concatenate([sizes, -sizes])
    got = value(ops.dequant_mxfp4, ops.pack_int4(codes), halves.astype(ml_dtypes.bfloat16))
    want = np.concatenate([np.tile(sixteen, 2), np.tile(sixteen, 2) * np.float32(2.0**-59)])
    np.testing.assert_array_equal(got[0], want)
    assert np.signbit(got[0, 8])


def test_f16_is_computed_in_f16():
    raw = random_blocks(GGMLQuantizationType.Q4_1, 2, 3, 64)
    codes, scales, mins = ops.pack_q4_1(raw, (3, 64))
    got = value(lambda c, s, m: ops.dequant_q4_1(c, s, m, "f16"), codes, scales, mins)
    assert got.dtype == np.float16
    want = dequantize(raw, GGMLQuantizationType.Q4_1)
    np.testing.assert_allclose(got.astype(np.float32), want, atol=2e-3)


def test_unpacking_is_shifts_masks_and_reshapes():
    raw = random_blocks(GGMLQuantizationType.Q4_1, 0, 4, 64)
    graph = graph_of(ops.dequant_q4_1, *ops.pack_q4_1(raw, (4, 64)))
    assert {e.op for e in graph.eqns} <= UNPACKING
    raw = random_blocks(GGMLQuantizationType.Q8_0, 0, 4, 64)
    graph = graph_of(ops.dequant_q8_0, *ops.pack_q8_0(raw, (4, 64)))
    assert {e.op for e in graph.eqns} <= UNPACKING


def test_no_rows_unpack_to_no_rows():
    specs = (poot.weight((0, 8), "u32"), poot.weight((0, 2), "f16"), poot.weight((0, 2), "f16"))
    assert poot.trace(ops.dequant_q4_1, specs).outputs[0].type.shape == (0, 64)


W = poot.weight


@pytest.mark.parametrize(
    "fn, specs, message",
    [
        (ops.dequant_q4_1, (W((4, 8)), W((4, 2)), W((4, 2))), "codes in u32 words"),
        (ops.dequant_q4_1, (W((4, 8), "u32"), W((4, 2)), W((4, 1))), "mins like scales"),
        (ops.dequant_q4_1, (W((4, 8), "u32"), W((4, 4)), W((4, 4))), "a scale for each 32 codes"),
        (ops.dequant_q8_0, (W((4, 8), "u32"), W((3, 1))), r"scales \[..., groups\]"),
        (ops.dequant_q8_0, (W((4, 8), "u32"), W((4, 1), "i32")), "scales of a float dtype"),
        (ops.dequant_int8, (W((4, 8), "u32"), W((4, 3))), "groups divide a row"),
        (ops.dequant_fp8, (W((4, 8)), W((4, 1))), "codes f8e4m3"),
        (ops.dequant_int4, (W((4, 8)), W((4, 2)), W((4, 2))), "codes in u32 words"),
        (ops.dequant_int4, (W((4, 8), "u32"), W((4, 2)), W((4, 1))), "zeros like scales"),
        (ops.dequant_int4, (W((4, 8), "u32"), W((4, 3)), W((4, 3))), "groups divide a row"),
        (ops.dequant_mxfp4, (W((4, 8), "u32"), W((4, 1))), "a scale for each 32 codes"),
    ],
)
def test_parts_that_do_not_belong_together_are_refused(
    fn: object, specs: tuple[object, ...], message: str
):
    assert callable(fn)
    with pytest.raises(TypeRuleError, match=message):
        poot.trace(lambda *xs: fn(*xs), specs)


@pytest.mark.parametrize(
    "pack, raw, shape, message",
    [
        (ops.pack_q4_1, bytes(19), (32,), r"Q4_1 needs 20 bytes for shape \(32,\): got 19"),
        (ops.pack_q8_0, bytes(68), (1, 32), "Q8_0 needs 34 bytes .* got 68"),
        (ops.pack_q4_1, bytes(20), (31,), "rows of whole blocks of 32"),
        (ops.pack_q4_1, bytes(20), (), "rows of whole blocks of 32"),
    ],
)
def test_raw_bytes_of_another_length_are_refused(
    pack: object, raw: bytes, shape: tuple[int, ...], message: str
):
    assert callable(pack)
    with pytest.raises(FormatError, match=message):
        pack(raw, shape)


def test_codes_that_fill_no_word_are_refused():
    for bad in (np.zeros((2, 6), np.int8), np.zeros((2, 8), np.uint8), np.zeros((), np.int8)):
        with pytest.raises(FormatError, match="pack_int8 needs i8"):
            ops.pack_int8(bad)


def test_unpacked_weights_multiply():
    raw = random_blocks(GGMLQuantizationType.Q4_1, 3, 6, 64)
    x = normal(0, 2, 64)

    def fn(x: object, *packed: object) -> object:
        return {"y": ops.linear(x, ops.dequant_q4_1(*packed))}

    got = evaluate(fn, x, *ops.pack_q4_1(raw, (6, 64)))
    want = x @ dequantize(raw, GGMLQuantizationType.Q4_1).T
    np.testing.assert_allclose(got["y"], want, rtol=1e-5, atol=1e-5)
    for bad in (np.zeros((2, 12), np.uint8), np.zeros((2, 8), np.int8), np.zeros((), np.uint8)):
        with pytest.raises(FormatError, match="pack_int4 needs u8"):
            ops.pack_int4(bad)
