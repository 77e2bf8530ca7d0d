"""poot compiles array programs, traced from plain Python, into kernels for GPUs and CPUs."""

from poot import errors, ops
from poot.ops.refusals import grad, value_and_grad
from poot.trace import const, slot, state, trace, weight

__all__ = [
    "const",
    "errors",
    "grad",
    "ops",
    "slot",
    "state",
    "trace",
    "value_and_grad",
    "weight",
]
