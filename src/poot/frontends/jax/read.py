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
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from poot.frontends.foreign import Call, Ref
from poot.frontends.jax.arrays import as_numpy, type_of
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
    """file:line of the innermost call outside of jax that an eqn comes from."""
    trace = getattr(eqn.source_info, "traceback", None)
    frames = list(trace.frames) if trace is not None else []
    jax = str(Path(importlib.import_module("jax").__file__ or "").parent) + os.sep
    own = [f for f in frames if not f.file_name.startswith((jax, _HERE))] or frames
    return f"{own[0].file_name}:{own[0].line_num}" if own else ""


def _plain(value: Any) -> object:
    """A parameter; of one with named parts the parts, with Python's integers."""
    if not hasattr(value, "_fields"):
        return value
    return SimpleNamespace(**{k: tuple(map(int, v)) for k, v in value._asdict().items()})


@dataclass(slots=True)
class Calls:
    """The eqns of a jaxpr, read one by one, and what they read: each value is a Ref, or a number
    that is known."""

    calls: list[Call] = field(default_factory=list[Call])
    count: int = 0

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
        array = np.asarray(value)
        if isinstance(type, str):
            return self._call("literal", (), (aval,), "", problem=type)[0]
        given = as_numpy(array, "a number") if array.ndim else array.item()
        return self._call("literal", (given,), (aval,), "")[0]

    def const(self, value: Any) -> object:
        """An array that the jaxpr holds, as a call that makes it."""
        return self._literal(value, value)

    def _eqn(self, eqn: Any, ins: list[object]) -> list[object]:
        name = eqn.primitive.name
        if name in _INLINED:
            body = next(eqn.params[k] for k in _BODIES if k in eqn.params)
            return self._closed(body, ins)
        if name == "scan" and eqn.params["length"] <= MOST_STEPS:
            return self._scan(eqn, ins)
        if name == "cond":
            return self._cond(eqn, ins)
        loc, problem = line_of(eqn), ""
        if name == "scan":
            problem = f"it takes {eqn.params['length']} steps, more than {MOST_STEPS}"
        elif name == "while":
            problem = "how often it runs is data: give it bounds that are known, as fori_loop takes"
        avals = [v.aval for v in eqn.outvars]
        options = {k: _plain(v) for k, v in eqn.params.items()}
        return self._call(name, tuple(ins), avals, loc, options, problem)

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
        loc = line_of(eqn)
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
            out += self._call("select_n", (ins[0], *cases), (var.aval,), line_of(eqn))
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
