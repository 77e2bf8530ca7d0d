"""Matrices that a checkpoint stores in codes: where their parts lie, and what they stand for.

    method    tensors                                        values
    fp8       X.weight F8_E4M3, X.weight_scale_inv F32       code * scale, a scale a block
    fp8_rows  X.weight F8_E4M3, X.weight_scale               code * scale, a scale a row or one
    mxfp4     X_blocks U8, X_scales U8                       E2M1 * 2^(scale - 127), 32 a scale
    awq       X.qweight I32, X.qzeros I32, X.scales F16      (code - zero) * scale, a group
    gptq      the same, and X.g_idx I32                      (code - zero) * scale, a group

In poot a matrix [..., out, in] keeps its codes, packed along `in`, with a row's scales beside it,
and is decoded where it is used. An mxfp4 one is used as [..., in, out].
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Generic, TypeVar

import ml_dtypes
import numpy as np

from poot import ops
from poot.errors import FormatError
from poot.llm.models.parts.kinds import Coding
from poot.llm.tensor_files import TensorFiles
from poot.ops.array import Array
from poot.trace import Spec, weight

T = TypeVar("T")
Shape = tuple[int, ...]
MX = 32  # codes of mxfp4 a scale
MX_MOST, MX_NAN = 252, 255  # 6 * 2^(252 - 127) is the largest value that f32 holds
_AWQ = (0, 4, 1, 5, 2, 6, 3, 7)  # the place in a word of each of eight consecutive codes


@dataclass(frozen=True, slots=True)
class Fp8(Generic[T]):
    """codes f8e4m3 [..., out, in], scales f32 [..., out, groups]."""

    codes: T
    scales: T


@dataclass(frozen=True, slots=True)
class Mx4(Generic[T]):
    """codes u32 [..., out, in/8] of E2M1, scales bf16 [..., out, in/32], halved."""

    codes: T
    scales: T


@dataclass(frozen=True, slots=True)
class Int4(Generic[T]):
    """codes u32 [..., out, in/8], scales and zeros f16 [..., out, groups]."""

    codes: T
    scales: T
    zeros: T


Matrix = T | Fp8[T] | Mx4[T] | Int4[T]


def decoded(matrix: Matrix[Array]) -> Array:
    """The values in f32: [..., out, in], of an Mx4 [..., in, out]."""
    if isinstance(matrix, Fp8):
        return ops.dequant_fp8(matrix.codes, matrix.scales)
    if isinstance(matrix, Int4):
        return ops.dequant_int4(matrix.codes, matrix.scales, matrix.zeros)
    if isinstance(matrix, Mx4):
        return ops.dequant_mxfp4(matrix.codes, matrix.scales).swapaxes(-1, -2)
    return matrix.astype("f32")


def taken(matrix: Matrix[Array], ids: Array) -> Matrix[Array]:
    """The matrices of `ids` of a stack of them."""
    return mapped(matrix, lambda part: ops.take(part, ids))


def mapped(matrix: Matrix[Array], change: Callable[[Array], Array]) -> Matrix[Array]:
    """Each part changed."""
    if isinstance(matrix, Array):
        return change(matrix)
    return type(matrix)(**{f.name: change(getattr(matrix, f.name)) for f in fields(matrix)})


def part_names(coding: Coding, tensor: str) -> dict[str, str]:
    """The tensors that stand in the place of one: part -> name."""
    if coding.method == "mxfp4":
        return {"codes": f"{tensor}_blocks", "scales": f"{tensor}_scales"}
    base = tensor.removesuffix(".weight")
    if coding.method in ("awq", "gptq"):
        made = {"codes": f"{base}.qweight", "scales": f"{base}.scales", "zeros": f"{base}.qzeros"}
        return made | ({"order": f"{base}.g_idx"} if coding.method == "gptq" else {})
    tail = "_inv" if coding.method == "fp8" else ""
    return {"codes": tensor, "scales": f"{base}.weight_scale{tail}"}


def has_codes(files: TensorFiles, coding: Coding | None, tensor: str) -> bool:
    """Whether the checkpoint has the tensor in codes."""
    if coding is None:
        return False
    name = part_names(coding, tensor)["codes"]
    found = files.tensors.get(name)
    return found is not None and (name != tensor or found.dtype == "F8_E4M3")


def check_coded(files: TensorFiles, coding: Coding, tensor: str, shape: Shape) -> set[str]:
    """The names of a coded tensor's parts. Raises FormatError where one is missing, or isn't of the
    dtype and shape that follow from the tensor's `shape`."""
    names = part_names(coding, tensor)
    for part, (dtypes, shapes) in _expected(coding, tensor, shape).items():
        found = files.info(names[part])
        if found.dtype not in dtypes or found.shape not in shapes:
            wanted = " or ".join(str(list(s)) for s in shapes)
            raise FormatError(
                f"{found.file}: tensor {names[part]} is {found.dtype} {list(found.shape)}; "
                f"config.json makes it {' or '.join(dtypes)} {wanted}"
            )
    return set(names.values())


def _expected(
    coding: Coding, tensor: str, shape: Shape
) -> dict[str, tuple[tuple[str, ...], tuple[Shape, ...]]]:
    """Each part's (dtypes, shapes)."""
    if coding.method == "mxfp4":
        experts, width, out = shape
        _need(width % MX == 0, tensor, f"rows of whole blocks of {MX}", shape)
        blocks = (experts, out, width // MX)
        return {"codes": (("U8",), ((*blocks, MX // 2),)), "scales": (("U8",), (blocks,))}
    out, width = shape
    if coding.method == "fp8_rows":
        return {"codes": (("F8_E4M3",), (shape,)),
                "scales": (("F32", "BF16"), ((out, 1), (1,), ()))}  # fmt: skip
    rows, columns = coding.block
    _need(width % columns == 0 or width < columns, tensor, f"rows of blocks of {columns}", shape)
    if coding.method == "fp8":
        groups = (-(-out // rows), -(-width // columns))
        return {"codes": (("F8_E4M3",), (shape,)), "scales": (("F32",), (groups,))}
    _need(out % 8 == 0 == width % 8, tensor, "extents that 8 divides", shape)
    groups = -(-width // columns)
    packed = (width, out // 8) if coding.method == "awq" else (width // 8, out)
    made: dict[str, tuple[tuple[str, ...], tuple[Shape, ...]]] = {
        "codes": (("I32",), (packed,)),
        "scales": (("F16",), ((groups, out),)),
        "zeros": (("I32",), ((groups, out // 8),)),
    }
    return made | ({"order": (("I32",), ((width,),))} if coding.method == "gptq" else {})


def _need(claim: bool, tensor: str, what: str, shape: Shape) -> None:
    if not claim:
        raise FormatError(f"tensor {tensor} {list(shape)} is in codes, which need {what}")


def coded_spec(coding: Coding, shape: Shape) -> Matrix[Spec]:
    """The specs of `coded_array`."""
    *lead, out, width = shape
    if coding.method == "mxfp4":
        *lead, width, out = shape
        return Mx4(weight((*lead, out, width // 8), "u32"),
                   weight((*lead, out, width // MX), "bf16"))  # fmt: skip
    groups = 1 if coding.method == "fp8_rows" else -(-width // coding.block[1])
    if coding.method in ("awq", "gptq"):
        row = weight((*lead, out, groups), "f16")
        return Int4(weight((*lead, out, width // 8), "u32"), row, row)
    return Fp8(weight(shape, "f8e4m3"), weight((*lead, out, groups)))


def coded_array(
    files: TensorFiles, coding: Coding, tensor: str, shape: Shape
) -> Matrix[np.ndarray]:
    """A tensor's parts in poot's order. Raises FormatError where a GPTQ one is in another order
    than its rows', or a scale of an mxfp4 one is no number or too large."""
    held = {part: files.raw(name) for part, name in part_names(coding, tensor).items()}
    if coding.method == "mxfp4":
        experts, width, out = shape
        words = np.ascontiguousarray(held["codes"]).view("<u4").reshape(experts, out, width // 8)
        most = int(held["scales"].max(initial=0))
        if most > MX_MOST:
            what = (
                "NaN" if most == MX_NAN else f"2^{most - 127}, past which f32 doesn't hold values"
            )
            raise FormatError(f"tensor {tensor}_scales holds a scale of {what}")
        halves = np.ldexp(np.float32(1), held["scales"].astype(np.int32) - 128)
        return Mx4(words, halves.astype(ml_dtypes.bfloat16))
    if coding.method == "fp8_rows":
        scales = held["scales"].astype(np.float32).reshape(-1, 1)
        return Fp8(held["codes"], np.ascontiguousarray(np.broadcast_to(scales, (shape[0], 1))))
    if coding.method == "fp8":
        rows = np.repeat(held["scales"], coding.block[0], axis=0)[: shape[0]]
        return Fp8(held["codes"], np.ascontiguousarray(rows))
    return _int4(coding, tensor, held)


def _int4(coding: Coding, tensor: str, held: Mapping[str, np.ndarray]) -> Int4[np.ndarray]:
    scales = np.ascontiguousarray(held["scales"].T)
    zeros = _unpacked(held["zeros"], coding.method).T
    if coding.method == "awq":
        codes = _unpacked(held["codes"], "awq").T
        return Int4(ops.pack_int4(np.ascontiguousarray(codes)), scales, zeros.astype(np.float16))
    order = held["order"]
    if not np.array_equal(order, np.arange(order.size) // coding.block[1]):
        name = part_names(coding, tensor)["order"]
        raise FormatError(
            f"tensor {name} orders columns by activation; poot reads GPTQ weights whose groups are "
            "consecutive columns"
        )
    words = np.ascontiguousarray(held["codes"].T).view(np.uint32)
    return Int4(words, scales, (zeros + coding.zero).astype(np.float16))


def _unpacked(words: np.ndarray, method: str) -> np.ndarray:
    """u8 [rows, 8n] of codes in i32 words [rows, n], a word's codes in the method's order."""
    places = np.array(_AWQ if method == "awq" else range(8), np.uint32) * np.uint32(4)
    apart = (words.view(np.uint32)[..., None] >> places) & np.uint32(15)
    return apart.astype(np.uint8).reshape(words.shape[0], -1)


def stacked(each: list[Matrix[np.ndarray]]) -> Matrix[np.ndarray]:
    """Matrices of one kind as one, a new axis first."""
    first = each[0]
    if isinstance(first, np.ndarray):
        return np.stack([x for x in each if isinstance(x, np.ndarray)])
    return type(first)(
        **{f.name: np.stack([getattr(x, f.name) for x in each]) for f in fields(first)}
    )


def values_of(matrix: Matrix[np.ndarray]) -> np.ndarray:
    """What a matrix stands for, f32 in the shape that `decoded` gives."""
    if isinstance(matrix, Fp8):
        return _grouped(matrix.codes.astype(np.float32), matrix.scales)
    if isinstance(matrix, np.ndarray):
        return matrix.astype(np.float32)
    places = np.arange(8, dtype=np.uint32) * np.uint32(4)
    codes = (matrix.codes[..., None] >> places) & np.uint32(15)
    codes = codes.reshape(*matrix.codes.shape[:-1], -1)
    if isinstance(matrix, Int4):
        each = codes.shape[-1] // matrix.zeros.shape[-1]
        zeros = np.repeat(matrix.zeros.astype(np.float32), each, axis=-1)
        return _grouped(codes.astype(np.float32) - zeros, matrix.scales)
    twice = np.array([0, 1, 2, 3, 4, 6, 8, 12], np.float32)
    table = np.concatenate([twice, -twice])
    return np.swapaxes(_grouped(table[codes], matrix.scales), -1, -2)


def _grouped(codes: np.ndarray, scales: np.ndarray) -> np.ndarray:
    apart = codes.reshape(*scales.shape, -1)
    return (apart * scales.astype(np.float32)[..., None]).reshape(codes.shape)
