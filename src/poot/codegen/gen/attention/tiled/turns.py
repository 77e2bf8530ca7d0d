"""Which block a group takes next: drawn from a counter, and handed to every role.

The grid is as many groups as there are compute units. A group's first block is its own number; the
lane that copies keys draws the others, two tiles of keys before it needs one, and hands the number
to the other roles through a ring of two. The counters rest at all ones between launches: the last
group to leave sets them back.
"""

from __future__ import annotations

from collections.abc import Callable

from poot.codegen.gen.attention.tiled.shape import Form
from poot.codegen.gen.job import Job
from poot.codegen.kir.build import BOOL, I32, U32, KernelBuilder, Val

COUNTERS = "counters"
REST = (1 << 32) - 1
# Tiles of keys before the end of a block, at which the next is drawn.
AHEAD = 2
_NUMBERS, _FULL, _EMPTY, _SLOTS = "numbers", "nfull", "nempty", 2

Body = Callable[[Val, Val], None]
Draw = Callable[[Val, Val], None]


def slot_of(number: Val, slots: int) -> tuple[Val, Val]:
    """(slot, parity) of the number-th use of a ring of one or two slots."""
    if slots == 1:
        return number & 0, number & 1
    return number & 1, (number >> 1) & 1


class Turns:
    """The blocks of one group."""

    def __init__(self, job: Job, form: Form) -> None:
        self.job, self.form, self.k = job, form, job.k

    def declare(self) -> None:
        k = self.k
        k.param(COUNTERS, "u32", 2, "rw")
        self.job.args.append(("scratch", len(self.job.request.scratch) - 1))
        k.shared(_NUMBERS, "i32", _SLOTS)
        k.shared(_FULL, "mbar", _SLOTS, 8)
        k.shared(_EMPTY, "mbar", _SLOTS, 8)

    def start(self, others: int) -> None:
        """Makes the barriers: who hands on arrives once, and each subgroup of the consumers and so
        many others that copy let go."""
        for slot in range(_SLOTS):
            self.k.do("mbar_init", slot, mem=_FULL, count=1)
            self.k.do("mbar_init", slot, mem=_EMPTY, count=4 * self.form.consumers + others)

    def lead(self, body: Callable[[Val, Draw], None], *, leads: Val | None = None) -> None:
        """The loop of the lane that draws, or of its whole subgroup, for which lane 0 speaks
        (`leads`). `body(block, draw)` calls draw(n, count) for the n-th of its `count` tiles of
        keys."""
        k, form = self.k, self.form
        drawn = k.var(k.group_id(0), I32)
        turn, goes_on = k.var(k.lit(0, I32), I32), _flag(k)

        def draw(n: Val, count: Val) -> None:
            is_time = n.eq(k.op("max", count - (AHEAD + 1), 0))
            with k.if_(is_time if leads is None else is_time & leads):
                old = k.op("atomic", k.lit(0, I32), k.lit(1, U32), type=U32, mem=COUNTERS,
                           kind="add")  # fmt: skip
                k.set(drawn, k.bitcast(old, I32) + (1 + form.launched))

        with k.block_() as head:
            more = k.copy(goes_on)
        with k.while_(head, more):
            slot, parity = slot_of(k.copy(turn), _SLOTS)
            k.do("mbar_wait", slot, parity ^ 1, mem=_EMPTY)
            number = k.copy(drawn)
            if leads is not None:
                number = k.op("subgroup_broadcast", number, lane=0)
            with self.job.when(k.lit(True, BOOL) if leads is None else leads):
                k.store(_NUMBERS, slot, number)
                k.do("mbar_arrive", slot, mem=_FULL)
            k.set(turn, turn + 1)
            k.set(goes_on, number < form.groups)
            with k.if_(number < form.groups):
                body(number, draw)
        with self.job.when(k.lit(True, BOOL) if leads is None else leads):
            self._leave()

    def _leave(self) -> None:
        """The last group to leave sets the counters back."""
        k = self.k
        old = k.op("atomic", k.lit(1, I32), k.lit(1, U32), type=U32, mem=COUNTERS, kind="add")
        with k.if_((k.bitcast(old, I32) + 1).eq(self.form.launched - 1)):
            for n in range(2):
                k.store(COUNTERS, n, k.lit(REST, U32), cache="relaxed")

    def follow(self, body: Body, *, leads: Val | None = None) -> None:
        """Another role's loop: `body(block, turn)`. With `leads`, whole subgroups follow, and that
        lane lets go for its subgroup."""
        k = self.k
        turn, goes_on = k.var(k.lit(0, I32), I32), _flag(k)
        with k.block_() as head:
            more = k.copy(goes_on)
        with k.while_(head, more):
            own = k.copy(turn)
            slot, parity = slot_of(own, _SLOTS)
            k.do("mbar_wait", slot, parity, mem=_FULL)
            number = k.load(_NUMBERS, slot)
            if leads is None:
                k.do("mbar_arrive", slot, mem=_EMPTY)
            else:
                k.barrier("subgroup")
                with k.if_(leads):
                    k.do("mbar_arrive", slot, mem=_EMPTY)
            k.set(turn, turn + 1)
            k.set(goes_on, number < self.form.groups)
            with k.if_(number < self.form.groups):
                body(number, own)


def _flag(k: KernelBuilder) -> Val:
    true = k.op("eq", k.lit(0, I32), 0)
    return k.var(true, true.type)
