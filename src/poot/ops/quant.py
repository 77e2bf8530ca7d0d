"""Quantised weights: codes in u32 words, scales and minima apart, unpacked by primitives.

A word holds consecutive codes of a row, the first in its lowest bits: eight codes of 4 bits, or
four of 8. So word j of a row holds codes 8j .. 8j+7 (or 4j .. 4j+3), in blocks of 32 as without,
and unpacking is reshape, broadcast, shift and mask. Leading axes are free: gather rows of codes,
scales and minima, then unpack only those. The packers turn a file's blocks into these arrays."""

from __future__ import annotations

import math

import numpy as np

from poot.errors import FormatError
from poot.ops.array import Array, emit, reshape
from poot.ops.elementwise import bitcast, maximum, where
from poot.ops.record import refuse

BLOCK = 32
"""How many codes share a scale in Q4_1 and Q8_0."""

_Q4_1 = np.dtype([("scale", "<f2"), ("least", "<f2"), ("codes", "u1", (16,))])
_Q8_0 = np.dtype([("scale", "<f2"), ("codes", "i1", (32,))])


def dequant_q4_1(codes: Array, scales: Array, mins: Array, dtype: str = "f32") -> Array:
    """code * scale + min. codes u32 [..., in/8] of 4 bits, scales and mins [..., in/32], f16 or f32
    -> dtype [..., in]. Computed in dtype."""
    _need("dequant_q4_1", codes, scales, 8)
    if mins.type != scales.type:
        refuse("dequant_q4_1", "mins like scales", scales=scales.type, mins=mins.type)
    return _scaled(_nibbles(codes).astype(dtype), scales, mins)


def dequant_q8_0(codes: Array, scales: Array, dtype: str = "f32") -> Array:
    """code * scale. codes u32 [..., in/4] of four signed bytes, scales [..., in/32] -> dtype [...,
    in]. Computed in dtype."""
    _need("dequant_q8_0", codes, scales, 4)
    return _scaled(_signed_bytes(codes).astype(dtype), scales, None)


def dequant_int8(codes: Array, scales: Array, dtype: str = "f32") -> Array:
    """code * scale. codes u32 [..., in/4] of four signed bytes; scales [..., groups], each for
    in/groups consecutive codes of a row (one group: a scale a row) -> dtype [..., in]. Computed in
    dtype."""
    _need("dequant_int8", codes, scales, None)
    return _scaled(_signed_bytes(codes).astype(dtype), scales, None)


def dequant_fp8(codes: Array, scales: Array, dtype: str = "f32") -> Array:
    """code * scale. codes f8e4m3 [..., in]; scales [..., groups] as in `dequant_int8` -> dtype
    [..., in]. Computed in dtype."""
    if codes.dtype != "f8e4m3":
        refuse("dequant_fp8", "codes f8e4m3 [..., in]", codes=codes.type)
    _need_groups("dequant_fp8", codes.shape, scales)
    return _scaled(codes.astype(dtype), scales, None)


def dequant_int4(codes: Array, scales: Array, zeros: Array, dtype: str = "f32") -> Array:
    """(code - zero) * scale. codes u32 [..., in/8] of 4 bits without sign; scales and zeros [...,
    groups] as in `dequant_int8`, f16 or f32 -> dtype [..., in]. Computed in dtype."""
    if codes.dtype != "u32" or codes.ndim == 0:
        refuse("dequant_int4", "codes in u32 words", codes=codes.type)
    if zeros.type != scales.type:
        refuse("dequant_int4", "zeros like scales", scales=scales.type, zeros=zeros.type)
    _need_groups("dequant_int4", (*codes.shape[:-1], codes.shape[-1] * 8), scales)
    values = reshape(_nibbles(codes).astype(dtype), (*scales.shape, -1))
    zero = reshape(zeros.astype(dtype), (*zeros.shape, 1))
    result = (values - zero) * reshape(scales.astype(dtype), (*scales.shape, 1))
    return reshape(result, (*codes.shape[:-1], codes.shape[-1] * 8))


def dequant_mxfp4(codes: Array, scales: Array, dtype: str = "f32") -> Array:
    """Twice the code times scale. codes u32 [..., in/8] of 4 bits (OCP Microscaling, E2M1: a sign,
    two bits of exponent, one of mantissa: 0, 0.5, 1, 1.5, 2, 3, 4, 6); scales [..., in/32], half
    of what the format says, of a float dtype -> dtype [..., in]. Computed in dtype."""
    _need("dequant_mxfp4", codes, scales, 8)
    code = _nibbles(codes)
    size = code & 7
    normal = ((size & 1) | 2) << (maximum(size >> 1, 1) - 1)
    twice = where(size < 2, size, normal).astype(dtype)
    return _scaled(where(code < 8, twice, -twice), scales, None)


def _nibbles(codes: Array) -> Array:
    """u32 [..., words, 8]: the codes of each word."""
    return (reshape(codes, (*codes.shape, 1)) >> (_lanes(codes, 8, "u32") * 4)) & 15


def _need(op: str, codes: Array, scales: Array, a_word: int | None) -> None:
    if codes.dtype != "u32" or codes.ndim == 0:
        refuse(op, "codes in u32 words", codes=codes.type)
    width = codes.shape[-1] * (a_word or 4)
    _need_groups(op, (*codes.shape[:-1], width), scales)
    if a_word is not None and scales.shape[-1] * BLOCK != width:
        refuse(op, f"a scale for each {BLOCK} codes", codes=codes.type, scales=scales.type)


def _need_groups(op: str, shape: tuple[int, ...], scales: Array) -> None:
    alike = scales.ndim == len(shape) and scales.shape[:-1] == shape[:-1]
    if not alike or scales.shape[-1] == 0 or shape[-1] % scales.shape[-1]:
        refuse(
            op, "scales [..., groups] whose groups divide a row", codes=shape, scales=scales.type
        )
    if scales.dtype not in ("f16", "bf16", "f32"):
        refuse(op, "scales of a float dtype", scales=scales.type)


def _lanes(codes: Array, count: int, dtype: str) -> Array:
    return emit("iota", recorder=codes.recorder, shape=(count,), axis=0, dtype=dtype)


def _signed_bytes(codes: Array) -> Array:
    """i32 [..., words, 4]: byte i moved to the top, then down with its sign."""
    up = 24 - _lanes(codes, 4, "i32") * 8
    words = reshape(bitcast(codes, "i32"), (*codes.shape, 1))
    return (words << up) >> 24


def _scaled(values: Array, scales: Array, mins: Array | None) -> Array:
    """values in groups times a scale a group, plus a minimum a group."""
    lead, groups = scales.shape[:-1], scales.shape[-1]
    width = math.prod(values.shape[len(lead) :]) // groups
    grouped = reshape(values, (*scales.shape, width))
    result = grouped * reshape(scales.astype(values.dtype), (*scales.shape, 1))
    if mins is not None:
        result = result + reshape(mins.astype(values.dtype), (*mins.shape, 1))
    return reshape(result, (*lead, groups * width))


def pack_q4_1(
    raw: bytes | np.ndarray, shape: tuple[int, ...]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(codes u32 [..., in/8], scales f16 [..., in/32], mins f16 [..., in/32]) of a tensor [..., in]
    in GGUF's Q4_1 blocks: 20 bytes for 32 codes, byte j holding code j low and code j + 16 high.
    Raises FormatError where raw is of another length."""
    blocks = _blocks("Q4_1", raw, shape, _Q4_1)
    nibbles = np.concatenate([blocks["codes"] & 15, blocks["codes"] >> 4], axis=-1)
    codes = _words(nibbles.reshape(shape), 4)
    return codes, blocks["scale"].copy(), blocks["least"].copy()


def pack_q8_0(raw: bytes | np.ndarray, shape: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    """(codes u32 [..., in/4], scales f16 [..., in/32]) of a tensor [..., in] in GGUF's Q8_0 blocks:
    34 bytes for 32 codes. Raises FormatError where raw is of another length."""
    blocks = _blocks("Q8_0", raw, shape, _Q8_0)
    return pack_int8(blocks["codes"].reshape(shape)), blocks["scale"].copy()


def pack_int4(codes: np.ndarray) -> np.ndarray:
    """u32 [..., in/8] of codes 0 .. 15, u8 [..., in]. Raises FormatError where 8 doesn't divide a
    row."""
    if codes.dtype != np.uint8 or codes.ndim == 0 or codes.shape[-1] % 8:
        raise FormatError(f"pack_int4 needs u8 [..., 8n]: codes={codes.dtype}{list(codes.shape)}")
    return _words(codes, 4)


def pack_int8(codes: np.ndarray) -> np.ndarray:
    """u32 [..., in/4] of signed bytes [..., in]. Raises FormatError where 4 doesn't divide a
    row."""
    if codes.dtype != np.int8 or codes.ndim == 0 or codes.shape[-1] % 4:
        raise FormatError(f"pack_int8 needs i8 [..., 4n]: codes={codes.dtype}{list(codes.shape)}")
    return _words(codes.view(np.uint8), 8)


def _blocks(
    kind: str, raw: bytes | np.ndarray, shape: tuple[int, ...], block: np.dtype
) -> np.ndarray:
    """The file's blocks, [..., in/32] records."""
    if not isinstance(raw, bytes) and raw.dtype.hasobject:
        raise FormatError(f"{kind} needs bytes: got an array of {raw.dtype}")
    flat = (
        np.frombuffer(raw, np.uint8) if isinstance(raw, bytes) else raw.reshape(-1).view(np.uint8)
    )
    if not shape or shape[-1] % BLOCK:
        raise FormatError(f"{kind} needs rows of whole blocks of {BLOCK}: shape={shape}")
    rows = (*shape[:-1], shape[-1] // BLOCK)
    want = int(np.prod(rows)) * block.itemsize
    if flat.size != want:
        raise FormatError(f"{kind} needs {want} bytes for shape {shape}: got {flat.size}")
    return np.ascontiguousarray(flat).view(block).reshape(rows)


def _words(codes: np.ndarray, bits: int) -> np.ndarray:
    """Consecutive unsigned codes side by side in u32 words, the first lowest."""
    a_word = 32 // bits
    apart = codes.reshape(*codes.shape[:-1], codes.shape[-1] // a_word, a_word)
    words = np.zeros(apart.shape[:-1], np.uint32)
    for i in range(a_word):
        words |= apart[..., i].astype(np.uint32) << np.uint32(bits * i)
    return words
