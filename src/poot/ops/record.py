"""Who records the eqns of a traced function, and whose line each one is.

Each traced value holds its Recorder, so an eqn goes where its operands live. The recorder that is
open in this context is known too, for values made from nothing (`arange`, `zeros`)."""

from __future__ import annotations

import os
import sys
from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import NoReturn

import numpy as np

from poot.errors import PootError, TraceError, TypeRuleError
from poot.ir.build import Builder
from poot.ir.dtypes import DTYPES, dtype_of
from poot.ir.graph import Const, Input, TensorType

_POOT = str(Path(__file__).parent.parent) + os.sep
_MODELS = _POOT + "llm" + os.sep


_LINE: ContextVar[str] = ContextVar("poot_line", default="")


@contextmanager
def located(loc: str) -> Generator[None]:
    """What is recorded within is of the line `loc`, in a program that was written elsewhere; where
    that is empty, of the caller's line as ever."""
    token = _LINE.set(loc)
    try:
        yield
    finally:
        _LINE.reset(token)


@lru_cache(4096)
def _is_callers(name: str) -> bool:
    """Whether a file is none of poot's own machinery."""
    return not name.startswith(_POOT) or name.startswith(_MODELS)


def here() -> str:
    """file:line of the nearest caller that isn't poot's own machinery; poot's models count as
    callers. Within `located` it is the line given there."""
    line = _LINE.get()
    if line:
        return line
    frame = sys._getframe(1)  # pyright: ignore[reportPrivateUsage] - inspect.stack is slow
    while True:
        name = frame.f_code.co_filename
        if _is_callers(name):
            return f"{name}:{frame.f_lineno}"
        if frame.f_back is None:
            return ""
        frame = frame.f_back


def refuse(
    op: str, rule: str, remedy: str = "", error: type[PootError] = TypeRuleError, **seen: object
) -> NoReturn:
    """Raises `error`: "{op} needs {rule}: name=value, .... {remedy}", at the user's line."""
    values = ", ".join(f"{name}={value}" for name, value in seen.items())
    message = f"{op} needs {rule}" + (f": {values}" if values else "")
    raise error(f"{message}. {remedy}" if remedy else message, here())


def _no_arrays() -> dict[int, tuple[np.ndarray, Input]]:
    return {}


def _no_consts() -> dict[tuple[TensorType, bytes], Input]:
    return {}


def _no_lists() -> dict[int, tuple[int, int, str]]:
    return {}


@dataclass(slots=True, eq=False)
class Recorder:
    """One trace in progress.

    `arrays` maps the identity of a numpy array to it and its input, so that its bytes are read
    once, at its first use; `consts` has one input for equal type and bytes. `block_lists` has, for
    each value that `ops.block_topk` made, what it is a list for: the id of the positions, the
    ratio, and what is always visited."""

    builder: Builder = field(default_factory=Builder)
    arrays: dict[int, tuple[np.ndarray, Input]] = field(default_factory=_no_arrays)
    consts: dict[tuple[TensorType, bytes], Input] = field(default_factory=_no_consts)
    block_lists: dict[int, tuple[int, int, str]] = field(default_factory=_no_lists)
    is_open: bool = True

    def const_array(self, array: np.ndarray, op: str) -> Input:
        """The Const input that holds `array`. int64 that fits i32 becomes i32; no other dtype
        changes. Raises TypeRuleError on a dtype that poot has not."""
        held = self.arrays.get(id(array))
        if held is not None:
            return held[1]
        dtype, data = device_bytes(array, op)
        key = (TensorType(dtype, array.shape), data)
        entry = self.consts.get(key)
        if entry is None:
            self.builder.input(key[0], f"const#{len(self.consts)}", Const(data))
            entry = self.consts[key] = self.builder.inputs[-1]
        self.arrays[id(array)] = (array, entry)
        return entry


def device_bytes(array: np.ndarray, op: str) -> tuple[str, bytes]:
    """(dtype, row-major bytes) of a numpy array that is known at trace time."""
    if array.dtype == np.int64:
        low, high = (int(array.min()), int(array.max())) if array.size else (0, 0)
        if low < -(2**31) or high >= 2**31:
            refuse(op, "an int64 array that fits i32", least=low, largest=high)
        array = array.astype(np.int32)
    dtype = dtype_of(array.dtype)
    if dtype is None:
        known = ", ".join(str(d.numpy) for d in DTYPES.values())
        refuse(
            op, f"an array of a dtype among {known}", "Write .astype(...) first", dtype=array.dtype
        )
    return dtype, np.ascontiguousarray(array).tobytes()


_CURRENT: ContextVar[Recorder | None] = ContextVar("poot_recorder", default=None)


def current(op: str) -> Recorder:
    """The recorder open in this context. Raises TraceError outside of a trace."""
    recorder = _CURRENT.get()
    if recorder is None:
        refuse(op, "a trace in progress", "Call it in a function given to poot.trace", TraceError)
    return recorder


@contextmanager
def recording() -> Generator[Recorder]:
    """A new recorder, open for the duration and current in this context."""
    recorder = Recorder()
    token = _CURRENT.set(recorder)
    try:
        yield recorder
    finally:
        recorder.is_open = False
        _CURRENT.reset(token)
