"""A request in the making: its kernel, its parameters, and what asks for its elements."""

from __future__ import annotations

from collections.abc import Container, Generator, Iterable
from contextlib import contextmanager
from dataclasses import dataclass, field

from poot.codegen.attributes import Attributes
from poot.codegen.gen.grid import Grid, fold_grid
from poot.codegen.gen.index import Indexer
from poot.codegen.gen.lowered import KernelCall
from poot.codegen.gen.memory import Cell, Memory, cell_of, word_cell
from poot.codegen.gen.numbers import Numbers, natives
from poot.codegen.gen.pull import Pull
from poot.codegen.kir.build import KernelBuilder, Val
from poot.errors import CapabilityError
from poot.ir.graph import Eqn, Graph, TensorType, Var
from poot.limits import DeviceLimits
from poot.planner.request import Request


def used_vars(body: Graph) -> set[int]:
    """Ids of values that some eqn or output reads."""
    return {v.id for e in body.eqns for v in e.ins} | {v.id for v in body.outputs}


def needed_by(body: Graph, targets: Iterable[Var], stop: Container[int] = ()) -> set[int]:
    """Ids of the targets and of every value that they are made of, not looking through `stop`."""
    makers = {v.id: e for e in body.eqns for v in e.outs}
    seen: set[int] = set()
    stack = list(targets)
    while stack:
        v = stack.pop()
        if v.id in seen or v.id in stop:
            continue
        seen.add(v.id)
        stack.extend(makers[v.id].ins if v.id in makers else ())
    return seen


def maker_of(body: Graph, var: Var) -> Eqn | None:
    """The eqn that makes a value, or None for an input."""
    for eqn in body.eqns:
        if any(out.id == var.id for out in eqn.outs):
            return eqn
    return None


@dataclass(slots=True)
class Job:
    """One kernel of a request. `args` follows the kernel's parameters. `ok` is the word under which
    State is written, once a sink has loaded it. `inputs` has the bound parameters, by value.
    `counts_long` says that what the generator does with addresses holds past 31 bits too: it adds
    and multiplies, and compares coordinates alone.
    """

    request: Request
    limits: DeviceLimits
    k: KernelBuilder
    indexer: Indexer
    numbers: Numbers
    pull: Pull
    args: list[tuple[str, int]] = field(default_factory=list[tuple[str, int]])
    ok: Val | None = None
    inputs: dict[int, Memory] = field(default_factory=dict[int, Memory])
    counts_long: bool = False

    def memory(
        self,
        name: str,
        type: TensorType,
        access: str,
        arg: tuple[str, int],
        cell: Cell | None = None,
    ) -> Memory:
        """A new parameter that holds a value of this type. Raises CapabilityError where its
        elements can't be counted."""
        _need_addressable(type, is_long=self.counts_long and self.limits.target == "ptx")
        cell = cell or cell_of(type.dtype, self.limits)
        self.k.param(name, cell.param, -(-type.elems // cell.per), access)
        self.args.append(arg)
        return Memory(self.k, self.numbers, self.indexer, name, cell, type.elems)

    def bind_inputs(
        self,
        skip: Iterable[int] = (),
        vector: int = 1,
        only: set[int] | None = None,
        words: Container[int] = (),
    ) -> None:
        """A parameter for each input that the body reads, but those in `skip` (positions); with
        `only`, for those of these var ids. Those in `words` (var ids) are read as whole words."""
        used = used_vars(self.request.body) if only is None else only
        left_out = set(skip)
        for n, i in enumerate(self.request.body.inputs):
            if n in left_out or i.var.id not in used:
                continue
            if i.var.type.elems:
                cell = word_cell(i.var.type) if i.var.id in words else None
                memory = self.memory(f"in{n}", i.var.type, "r", ("in", n), cell)
                memory.vector = vector
                self.inputs[i.var.id] = memory
                self.pull.bind(i.var, memory)

    @contextmanager
    def when(self, cond: Val) -> Generator[None]:
        """Runs the body where cond; without a branch where it is known to hold."""
        if cond.literal is True:
            yield
        else:
            with self.k.if_(cond):
                yield

    def follow(self) -> None:
        """From here on the kernel may read what launches before it wrote, and store. The next
        launch's groups may take their places: they wait in turn. Nothing, but on a target whose
        launches overlap."""
        if may_overlap(self.limits):
            self.k.do("grid_wait")

    def call(self, groups: int) -> KernelCall:
        """The finished launch."""
        grid: Grid = fold_grid(groups, self.limits)
        asked = Attributes(overlap=may_overlap(self.limits))
        return KernelCall(self.k.kernel(), grid, tuple(self.args), attributes=asked)


_OVERLAPS_FROM = 90


def may_overlap(limits: DeviceLimits) -> bool:
    """Whether a launch may begin before the one before it is done, and waits by itself: from
    compute capability 9.0 on (CUDA C++ Programming Guide, programmatic dependent launch)."""
    digits = "".join(c for c in limits.arch if c.isdigit())
    return limits.target == "ptx" and int(digits or 0) >= _OVERLAPS_FROM


def open_job(
    request: Request, limits: DeviceLimits, name: str, threads: int, *, follows: bool = True
) -> Job:
    """An empty kernel for a request. Where launches overlap it lets the next one begin; with
    `follows` it also waits here for the one before, without it the generator says when."""
    k = KernelBuilder(name, threads)
    indexer = Indexer(k)
    numbers = Numbers(k, natives(limits))
    job = Job(request, limits, k, indexer, numbers, Pull(k, request.body, indexer, numbers))
    if follows and may_overlap(limits):
        k.do("grid_trigger")
        job.follow()
    return job


# Elements that an i32 counts, with room for a launch's last group to pass the end; and those that
# PTX addresses, by a word without a sign.
MOST_ELEMS = (1 << 31) - (1 << 20)
MOST_LONG = (1 << 32) - (1 << 20)


def _need_addressable(type: TensorType, *, is_long: bool) -> None:
    bits, most = (32, MOST_LONG) if is_long else (31, MOST_ELEMS)
    if type.elems > most:
        raise CapabilityError(
            f"an operand {type} has {type.elems} elements, and kernels count elements in "
            f"{bits} bits; split it"
        )
