"""What every part of a grouped decode's kernel works with: the kernel, its numbers, who a lane
is."""

from __future__ import annotations

from dataclasses import dataclass

from poot.codegen.gen.attention.grouped.shape import WARP, Form
from poot.codegen.gen.attention.keys import begin_at
from poot.codegen.gen.job import Job
from poot.codegen.kir.build import BOOL, I32, U32, KernelBuilder, Val
from poot.ir.graph import Var


@dataclass(frozen=True, slots=True)
class Team:
    """One kernel in the making. `warp` and `lane` are a lane's subgroup and its place in it."""

    job: Job
    form: Form
    group: Val
    warp: Val
    lane: Val

    @staticmethod
    def of(job: Job, form: Form) -> Team:
        k = job.k
        k.subgroup, k.residents = WARP, form.residents
        warp, lane = k.op("subgroup_id", type=I32), k.op("subgroup_lane", type=I32)
        return Team(job, form, k.group_id(0), warp, lane)

    @property
    def k(self) -> KernelBuilder:
        return self.job.k

    def number(self, value: int) -> Val:
        return self.k.lit(value, I32)

    def count(self, start: Val | int) -> Val:
        """A mutable i32."""
        return self.k.var(start if isinstance(start, Val) else self.number(start), I32)

    def flag(self, start: Val | bool) -> Val:
        """A mutable bool."""
        held = start if isinstance(start, Val) else self.truth(start)
        return self.k.var(held, BOOL)

    def truth(self, value: bool) -> Val:
        return self.k.lit(value, BOOL)

    def clamped(self, value: Val, low: int, high: int) -> Val:
        return self.k.op("min", self.k.op("max", value, low), high)

    def name_of_input(self, var: Var) -> str:
        name = input_name(self.job, var)
        assert name is not None, var
        return name

    def length(self, row: Val) -> Val:
        """How many keys a batch row sees, 0 .. keys."""
        form, parts = self.form, self.form.parts
        if form.is_listed or ("len" not in parts.at and parts.begin is None):
            return self.number(form.most)
        end = self.number(form.end)
        if "len" in parts.at:
            at = self.job.indexer.atom(self.k.copy(row), parts.batch)
            end = self.clamped(self.job.pull.value(parts.at["len"], (at,)), 0, form.end)
        return self.k.op("max", end - self.first(row), 0) if form.begins_late else end

    def first(self, row: Val) -> Val:
        """The first key that a batch row sees, 0 .. keys."""
        form, parts = self.form, self.form.parts
        least = min(form.skipped, parts.keys)
        if parts.begin is None:
            return self.number(least)
        at = self.job.indexer.atom(self.k.copy(row), parts.batch)
        found = begin_at(self.job, parts, parts.begin, at)
        return self.k.op("max", found, least) if least else found

    def tiles(self, length: Val) -> Val:
        """Tiles of a unit: one at least, so that a row without keys is a unit like others."""
        shift = self.form.tile.bit_length() - 1
        return self.k.op("max", (length + (self.form.tile - 1)) >> shift, 1)

    def sum_xor(self, value: Val, *masks: int) -> Val:
        for mask in masks:
            value = value + self.k.op("shuffle_xor", value, mask=mask)
        return value

    def max_xor(self, value: Val, *masks: int) -> Val:
        for mask in masks:
            value = self.k.op("max", value, self.k.op("shuffle_xor", value, mask=mask))
        return value


def input_name(job: Job, var: Var) -> str | None:
    """The parameter of an input of the step's, None for what is computed."""
    for n, i in enumerate(job.request.body.inputs):
        if i.var.id == var.id:
            return f"in{n}"
    return None


def quotient(k: KernelBuilder, x: Val, d: Val | int) -> Val:
    """x / d of natural numbers. By a number, x * d stays below 2^32: a shift, or the high word of a
    product. By a register, the quotient stays below 2^20: an f32 reciprocal and a step of
    correction."""
    if isinstance(d, int):
        if d & (d - 1) == 0:
            return x >> (d.bit_length() - 1)
        magic = k.lit(-(-(1 << 32) // d), U32)
        return k.bitcast(k.op("mulhi", k.bitcast(x, U32), magic), I32)
    near = k.cast(k.cast(x, "f32") * k.op("rcp", k.cast(d, "f32")), "i32")
    rest = x - near * d
    return k.select(rest < 0, near - 1, k.select(rest >= d, near + 1, near))


def remainder(k: KernelBuilder, x: Val, d: int) -> Val:
    """What `quotient` by a number leaves."""
    return x & (d - 1) if d & (d - 1) == 0 else x - quotient(k, x, d) * d
