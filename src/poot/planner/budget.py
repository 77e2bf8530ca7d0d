"""Whether a plan fits: no binding, scratch or space over the device's, no more memory than there
is."""

from __future__ import annotations

from poot.errors import BindingLimit, MemoryBudget, ScratchBytes
from poot.limits import DeviceLimits
from poot.planner.plan import Plan, Step


def check_bindings(plan: Plan) -> None:
    """Raises BindingLimit or ScratchBytes, with the step, the bytes and the limit."""
    for entry in plan.lists:
        for step in entry.steps:
            _check_step(step, plan.limits)


def _check_step(step: Step, limits: DeviceLimits) -> None:
    for p in (*step.ins, *step.outs):
        if p.nbytes > limits.binding_nbytes:
            raise BindingLimit(
                f"{step.op} needs {p.name} of {p.nbytes} bytes in one binding and "
                f"{limits.name} binds at most "
                f"{limits.binding_nbytes}; use a smaller chunk or capacity",
                step.loc,
            )
    for p in step.scratch:
        if p.nbytes > min(limits.binding_nbytes, limits.buffer_nbytes):
            raise ScratchBytes(
                f"{step.op} needs a scratch of {p.nbytes} bytes and {limits.name} allows "
                f"{min(limits.binding_nbytes, limits.buffer_nbytes)}",
                step.loc,
            )


def check_budget(sizes: dict[str, int], limits: DeviceLimits, budget: int | None) -> None:
    """Raises MemoryBudget where the spaces together pass the device's memory or the budget, and
    BindingLimit where the arena, the results or what is at rest pass the largest buffer."""
    need = sum(sizes.values())
    most = min(limits.memory_nbytes, budget if budget is not None else limits.memory_nbytes)
    if need > most:
        parts = ", ".join(f"{k} {v}" for k, v in sorted(sizes.items()))
        raise MemoryBudget(
            f"the program needs {need} bytes of device memory and may take {most} on "
            f"{limits.name} ({parts}); "
            "lower the capacity or the chunk, or use a smaller dtype"
        )
    whole = (
        ("arena", "the arena needs"),
        ("results", "the results need"),
        ("rest", "scratch that is at rest between launches needs"),
    )
    for space, what in whole:
        if sizes.get(space, 0) > limits.buffer_nbytes:
            raise BindingLimit(
                f"{what} {sizes[space]} bytes in one buffer and {limits.name} allows "
                f"{limits.buffer_nbytes}; use a smaller chunk"
            )
