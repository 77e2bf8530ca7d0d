"""poot compiles array programs, traced from plain Python, into kernels for GPUs and CPUs."""

from poot import errors, ops
from poot.api import Program, compile
from poot.backends.registry import devices
from poot.bundle.load import LoadedProgram, load
from poot.errors import PootError
from poot.foreign_array import adopt
from poot.frontends.jax.program import from_jax
from poot.frontends.torch.program import from_torch
from poot.ir.text import parse, show
from poot.jit import jit
from poot.ops.refusals import grad, value_and_grad
from poot.session import Session
from poot.tagged import Tagged
from poot.trace import const, slot, state, trace, weight

__all__ = [
    "LoadedProgram",
    "PootError",
    "Program",
    "Session",
    "Tagged",
    "adopt",
    "compile",
    "const",
    "devices",
    "errors",
    "from_jax",
    "from_torch",
    "grad",
    "jit",
    "load",
    "ops",
    "parse",
    "show",
    "slot",
    "state",
    "trace",
    "value_and_grad",
    "weight",
]
