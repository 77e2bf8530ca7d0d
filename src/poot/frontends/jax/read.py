# pyright: basic
"""A jaxpr as calls: what `jax.make_jaxpr` leaves, in poot's types.

Jaxprs within jaxprs (jit, remat, custom derivatives) are read in place. A scan of known length is
read as often as it runs, and of a cond every branch, with a select between their results.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from numbers import Integral
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from poot.frontends.foreign import Call, Ref
from poot.frontends.jax.arrays import as_numpy, type_of
from poot.frontends.jax.keys import has_keys, on_words, raw
from poot.ir.graph import TensorType

# Primitives that hold a jaxpr and mean it, and the parameters that it stands under.
_INLINED = (
    "jit", "pjit", "closed_call", "core_call", "remat", "remat2", "checkpoint", "custom_jvp_call",
    "custom_vjp_call", "custom_vjp_call_jaxpr", "custom_lin",
)  # fmt: skip
_BODIES = ("jaxpr", "call_jaxpr", "fun_jaxpr")
_HERE = str(Path(__file__).parent) + os.sep
MOST_STEPS = 1024  # of a scan


def line_of(eqn: Any) -> str:
    """file:line of the innermost call outside of jax that an eqn comes from, or empty."""
    trace = getattr(eqn.source_info, "traceback", None)
    frames = list(trace.frames) if trace is not None else []
    own = [f for f in frames if not f.file_name.startswith((_jax(), _HERE))]
    return f"{own[0].file_name}:{own[0].line_num}" if own else ""


def _jax() -> str:
    """The folder of jax's own files."""
    return str(Path(importlib.import_module("jax").__file__ or "").parent) + os.sep


def _is_of_jax(jaxpr: Any) -> bool:
    """Whether a jaxpr is of a function of jax's own. Such a function is traced once for all its
    callers, so what its eqns know of a caller may be another's line."""
    source = str(getattr(getattr(jaxpr, "debug_info", None), "func_src_info", ""))
    return _jax() in source


def _plain(value: Any) -> object:
    """A parameter; of one with named parts that are all integers the parts, with Python's."""
    if not hasattr(value, "_fields"):
        return value
    parts = {k: v for k, v in value._asdict().items() if isinstance(v, Sequence)}
    if len(parts) != len(value) or not all(
        isinstance(n, Integral) for v in parts.values() for n in v
    ):
        return value
    return SimpleNamespace(**{k: tuple(map(int, v)) for k, v in parts.items()})


@dataclass(slots=True)
class Calls:
    """The eqns of a jaxpr, read one by one, and what they read: each value is a Ref, or a number
    that is known. `caller` is the user's line that a function of jax's own is called at."""

    calls: list[Call] = field(default_factory=list[Call])
    count: int = 0
    caller: str = ""

    def ref(self) -> Ref:
        self.count += 1
        return Ref(f"v{self.count}")

    def run(self, jaxpr: Any, consts: Sequence[object], args: Sequence[object]) -> list[object]:
        """The results of a jaxpr whose inputs are these values."""
        env: dict[Any, object] = dict(zip(jaxpr.constvars, consts, strict=True))
        env.update(zip(jaxpr.invars, args, strict=True))
        for eqn in jaxpr.eqns:
            ins = [self._read(env, v) for v in eqn.invars]
            env.update(zip(eqn.outvars, self._eqn(eqn, ins), strict=True))
        return [self._read(env, v) for v in jaxpr.outvars]

    def _read(self, env: dict[Any, object], atom: Any) -> object:
        if not hasattr(atom, "val"):
            return env[atom]
        return self._literal(atom.val, atom.aval)

    def _literal(self, value: Any, aval: Any) -> object:
        """A known number: a call that makes it, of the type that it has."""
        type = type_of(aval)
        if isinstance(type, str):
            return self._call("literal", (), (aval,), self.caller, problem=type)[0]
        array = as_numpy(value, "a number") if type.shape else np.asarray(value)
        given = array if array.ndim else array.item()
        return self._call("literal", (given,), (aval,), "")[0]

    def const(self, value: Any) -> object:
        """An array that the jaxpr holds, as a call that makes it."""
        return self._literal(value, value)

    def _eqn(self, eqn: Any, ins: list[object]) -> list[object]:
        name = eqn.primitive.name
        if name in _INLINED:
            body = next(eqn.params[k] for k in _BODIES if k in eqn.params)
            return self._inlined(body, ins, eqn)
        if name == "scan" and eqn.params["length"] <= MOST_STEPS:
            return self._scan(eqn, ins)
        if name == "cond":
            return self._cond(eqn, ins)
        if has_keys(eqn):
            return self._of_keys(eqn, ins)
        loc, problem = self._line(eqn), ""
        if name == "scan":
            problem = f"it takes {eqn.params['length']} steps, more than {MOST_STEPS}"
        elif name == "while":
            problem = "how often it runs is data: give it bounds that are known, as fori_loop takes"
        avals = [v.aval for v in eqn.outvars]
        options = {k: _plain(v) for k, v in eqn.params.items()}
        return self._call(name, tuple(ins), avals, loc, options, problem)

    def _line(self, eqn: Any) -> str:
        return self.caller or line_of(eqn)

    def _inlined(self, body: Any, ins: Sequence[object], eqn: Any) -> list[object]:
        """The results of a jaxpr that an eqn holds and means."""
        if self.caller or not _is_of_jax(getattr(body, "jaxpr", body)):
            return self._closed(body, ins)
        return self._at(line_of(eqn), body, ins)

    def _at(self, loc: str, body: Any, ins: Sequence[object]) -> list[object]:
        """The results of a jaxpr all of whose eqns are at the user's line `loc`."""
        before, self.caller = self.caller, loc
        outs = self._closed(body, ins)
        self.caller = before
        return outs

    def _of_keys(self, eqn: Any, ins: list[object]) -> list[object]:
        """The results of an eqn about random keys."""
        loc, fn = self._line(eqn), on_words(eqn)
        if isinstance(fn, str):
            avals = [v.aval for v in eqn.outvars]
            return self._call(eqn.primitive.name, tuple(ins), avals, loc, problem=fn)
        given = [raw(v.aval) for v in eqn.invars]
        return self._at(loc, importlib.import_module("jax").make_jaxpr(fn)(*given), ins)

    def _closed(self, body: Any, ins: Sequence[object]) -> list[object]:
        """The results of a jaxpr, closed over arrays or not."""
        if not hasattr(body, "consts"):
            return self.run(body, (), ins)
        return self.run(body.jaxpr, [self.const(c) for c in body.consts], ins)

    def _scan(self, eqn: Any, ins: list[object]) -> list[object]:
        at = eqn.params
        held, carried, length = at["num_consts"], at["num_carry"], at["length"]
        fixed, carry, rows = ins[:held], ins[held : held + carried], ins[held + carried :]
        avals = [v.aval for v in eqn.invars[held + carried :]]
        outs: list[list[object]] = [[] for _ in eqn.outvars[carried:]]
        order = range(length)[::-1] if at["reverse"] else range(length)
        loc = self._line(eqn)
        for n in order:
            row = [self._row_of(x, a, n, loc) for x, a in zip(rows, avals, strict=True)]
            got = self._closed(at["jaxpr"], [*fixed, *carry, *row])
            carry = got[:carried]
            for out, value in zip(outs, got[carried:], strict=True):
                out.append(value)
        stacked: list[object] = []
        for out, var in zip(outs, eqn.outvars[carried:], strict=True):
            parts = tuple(out[::-1] if at["reverse"] else out)
            stacked += self._call("stack_rows", (parts,), (var.aval,), loc)
        return [*carry, *stacked]

    def _row_of(self, x: object, aval: Any, n: int, loc: str) -> object:
        type = type_of(aval)
        known = TensorType("f32", (0,)) if isinstance(type, str) else type
        return self._typed("row", (x, n), (TensorType(known.dtype, known.shape[1:]),), loc)[0]

    def _cond(self, eqn: Any, ins: list[object]) -> list[object]:
        """Every branch, and a select between their results."""
        branches = [self._closed(b, ins[1:]) for b in eqn.params["branches"]]
        out: list[object] = []
        for var, *cases in zip(eqn.outvars, *branches, strict=True):
            out += self._call("select_n", (ins[0], *cases), (var.aval,), self._line(eqn))
        return out

    def _call(
        self, op: str, args: tuple[object, ...], avals: Iterable[Any], loc: str,
        options: dict[str, object] | None = None, problem: str = "",
    ) -> list[object]:  # fmt: skip
        types: list[TensorType] = []
        for aval in avals:
            type = type_of(aval)
            problem = problem or (type if isinstance(type, str) else "")
            types.append(TensorType("f32", (0,)) if isinstance(type, str) else type)
        return self._typed(op, args, tuple(types), loc, options, problem)

    def _typed(
        self, op: str, args: tuple[object, ...], types: tuple[TensorType, ...], loc: str,
        options: dict[str, object] | None = None, problem: str = "",
    ) -> list[object]:  # fmt: skip
        results = tuple(self.ref() for _ in types)
        self.calls.append(Call(op, args, results, types, loc, options or {}, problem))
        return list(results)
