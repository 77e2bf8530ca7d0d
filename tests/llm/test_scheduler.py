"""The scheduler alone: order, buckets, preemption, whole pools; a model-based test of scheduler,
block tables and prefix cache together."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from poot.errors import RequestError
from poot.llm.blocks import BLOCK_SIZE
from poot.llm.layout import Layout
from poot.llm.prefix import Identity
from poot.llm.scheduler import Scheduler, Sequence, StepPlan
from tests.support.paged_fake import LAYOUT

BASE = Identity("digest", 1)


def sequence(number: int, size: int, new: int = 8, first: int = 0) -> Sequence:
    return Sequence(number, [first] * size, size + new, BASE)


def played(scheduler: Scheduler, plan: StepPlan | None) -> StepPlan:
    """Does a plan's work: computed tokens move on, and each finished row gets a token."""
    assert plan is not None
    for part in plan.parts:
        for s, count in part.rows:
            is_end = count == s.remaining
            scheduler.done(s, count)
            if is_end:
                s.tokens.append(100 + s.number)
    return plan


def rows_of(plan: StepPlan) -> list[tuple[int, int, int]]:
    return [(s.number, s.computed, count) for part in plan.parts for s, count in part.rows]


def test_a_prompt_is_read_in_chunks_and_then_decoded():
    scheduler = Scheduler(LAYOUT)
    s = sequence(1, 23)
    scheduler.add(s)
    seen: list[tuple[int, int]] = []
    for _ in range(6):
        plan = scheduler.plan()
        assert plan is not None
        seen += [
            (part.bucket * part.tokens, count) for part in plan.parts for _, count in part.rows
        ]
        played(scheduler, plan)
    assert seen == [(16, 16), (4, 4), (4, 3), (1, 1), (1, 1), (1, 1)]


def test_a_step_decodes_some_and_reads_the_prompts_of_others():
    scheduler = Scheduler(LAYOUT)
    scheduler.add(sequence(1, 1))
    scheduler.add(sequence(2, 16, first=5))
    plan = scheduler.plan()
    assert plan is not None
    assert plan.decode is not None
    assert plan.prefill is not None
    assert [s.number for s, _ in plan.decode.rows] == [1]
    assert [s.number for s, _ in plan.prefill.rows] == [2]


def test_prompts_of_like_length_share_a_prefill():
    scheduler = Scheduler(replace(LAYOUT, blocks=40))
    for n in range(1, 6):
        scheduler.add(sequence(n, 14 + n % 3, first=n))
    plan = scheduler.plan()
    assert plan is not None
    assert plan.prefill is not None
    assert [s.number for s, _ in plan.prefill.rows] == [1, 2, 3]
    assert (plan.prefill.bucket, plan.prefill.tokens, plan.prefill.padding) == (3, 16, 3)


def test_sequences_are_admitted_in_order_of_arrival_whatever_their_size():
    scheduler = Scheduler(replace(LAYOUT, blocks=7))
    scheduler.add(sequence(2, 60, first=2))
    scheduler.add(sequence(1, 60, first=1))
    scheduler.add(sequence(3, 4, first=3))
    scheduler.plan()
    assert [s.number for s in scheduler.running] == [1]
    assert [s.number for s in scheduler.waiting] == [2, 3]


def test_the_last_to_come_is_preempted_and_the_first_goes_on():
    scheduler = Scheduler(replace(LAYOUT, blocks=5), caching=False)
    old, young = sequence(1, 30, 30, first=1), sequence(2, 30, 30, first=2)
    scheduler.add(old)
    scheduler.add(young)
    while old.remaining <= old.limit and len(old.tokens) < old.limit:
        played(scheduler, scheduler.plan())
    assert scheduler.preemptions >= 1
    assert young.preempted >= 1
    assert old.preempted == 0
    scheduler.remove(old)
    while len(young.tokens) < young.limit:
        played(scheduler, scheduler.plan())
    scheduler.remove(young)
    assert scheduler.pool.free == 4


def test_case_28_a_preempted_sequence_holds_no_block():
    scheduler = Scheduler(replace(LAYOUT, blocks=5), caching=False)
    s = sequence(1, 40)
    scheduler.add(s)
    played(scheduler, scheduler.plan())
    table = s.held()
    scheduler.preempt(s)
    assert (s.table, s.computed, scheduler.pool.free) == (None, 0, 4)
    with pytest.raises(RequestError, match="was closed"):
        table.slots(0, 1)


@pytest.mark.parametrize(
    "size, hits", [(15, 0), (16, 15), (17, 16), (32, 31)], ids=lambda n: str(n)
)
def test_case_95_a_prompt_that_is_cached_whole_computes_its_last_token(size: int, hits: int):
    scheduler = Scheduler(LAYOUT)
    for number in (1, 2):
        s = Sequence(number, list(range(size)), size + 1, BASE)
        scheduler.add(s)
        plan = scheduler.plan()
        while plan is not None and s.remaining:
            copies = plan.copies
            played(scheduler, plan)
            if len(s.tokens) > size:
                break
            plan = scheduler.plan()
        if number == 2:
            assert s.cached == hits
            assert len(copies) == (hits % BLOCK_SIZE == 15)
        scheduler.remove(s)
    assert scheduler.prefix.hits == hits


def test_a_whole_hit_without_room_for_a_copy_computes_its_last_block():
    scheduler = Scheduler(replace(LAYOUT, blocks=3))
    text = list(range(32))
    first = Sequence(1, list(text), 32, BASE)
    scheduler.add(first)
    while first.remaining:
        plan = scheduler.plan()
        assert plan is not None
        for part in plan.parts:
            for s, count in part.rows:
                scheduler.done(s, count)
    scheduler.remove(first)
    second = Sequence(2, list(text), 32, BASE)
    scheduler.add(second)
    plan = scheduler.plan()
    assert plan is not None
    assert second.cached == 16
    assert plan.copies == ()


@pytest.mark.parametrize(
    "size, limit, words",
    [
        (0, 4, "the prompt is empty"),
        (90, 97, "pass the cache's capacity of 96"),
        (50, 81, "need 6 blocks, and the pool has 5"),
    ],
)
def test_what_can_never_run_is_refused(size: int, limit: int, words: str):
    scheduler = Scheduler(replace(LAYOUT, blocks=6))
    with pytest.raises(RequestError, match=words):
        scheduler.add(Sequence(1, [0] * size, limit, BASE))


def test_a_restart_puts_all_in_line_and_empties_the_cache():
    scheduler = Scheduler(LAYOUT)
    for n in (1, 2, 3):
        scheduler.add(sequence(n, 20, first=n))
    played(scheduler, scheduler.plan())
    scheduler.restart()
    assert [s.number for s in scheduler.waiting] == [1, 2, 3]
    assert len(scheduler.prefix) == 0
    assert scheduler.pool.free == scheduler.pool.usable


def test_a_sequence_whose_logits_are_no_numbers_is_forgotten():
    scheduler = Scheduler(LAYOUT)
    s = sequence(1, 20)
    scheduler.add(s)
    played(scheduler, scheduler.plan())
    assert len(scheduler.prefix) == 1
    scheduler.forget(s)
    assert len(scheduler.prefix) == 0
    scheduler.forget(sequence(2, 20, first=9))
    scheduler.remove(s)
    assert scheduler.pool.free == scheduler.pool.usable


SMALL = Layout(blocks=9, capacity=70, decode_rows=(1, 4), prefill=((1, 8), (2, 16), (1, 16)))


class Histories(RuleBasedStateMachine):
    """Requests come, run, are cancelled and preempted; pools are lost. The model: which token each
    slot holds, and what each sequence should read."""

    def __init__(self) -> None:
        super().__init__()
        self.scheduler = Scheduler(SMALL)
        self.live: list[Sequence] = []
        self.memory = np.full(SMALL.slots, -1)
        self.memory[:BLOCK_SIZE] = 0
        self.number = 0

    @rule(kind=st.integers(0, 2), size=st.integers(1, 50), new=st.integers(1, 20))
    def submit(self, kind: int, size: int, new: int):
        self.number += 1
        own = [] if kind else [1000 + self.number]
        tokens = (own + [kind * 100 + i for i in range(size)])[:size]
        s = Sequence(self.number, tokens, size + new, Identity("d", 1, adapter=kind // 2))
        self.scheduler.add(s)
        self.live.append(s)

    @rule(steps=st.integers(1, 12))
    def run(self, steps: int):
        for _ in range(steps):
            plan = self.scheduler.plan()
            if plan is None:
                return
            self.compute(plan)

    def compute(self, plan: StepPlan) -> None:
        for source, target in plan.copies:
            old, new = source * BLOCK_SIZE, target * BLOCK_SIZE
            self.memory[new : new + BLOCK_SIZE] = self.memory[old : old + BLOCK_SIZE]
        written: list[int] = []
        rows = [row for part in plan.parts for row in part.rows]
        assert len({s.number for s, _ in rows}) == len(rows)
        for s, count in rows:
            slots = s.held().writable(s.computed, s.computed + count)
            self.memory[slots] = s.tokens[s.computed : s.computed + count]
            written += slots.tolist()
        assert len(set(written)) == len(written), "two rows write one slot"
        assert min(written) >= BLOCK_SIZE
        for s, count in rows:
            stop = s.computed + count
            assert self.memory[s.held().slots(0, stop)].tolist() == s.tokens[:stop]
        for s, count in rows:
            is_end = count == s.remaining
            self.scheduler.done(s, count)
            if is_end:
                s.tokens.append(500 + len(s.tokens))
                if len(s.tokens) >= s.limit:
                    self.drop(s)

    def drop(self, s: Sequence) -> None:
        self.scheduler.remove(s)
        self.live.remove(s)

    @rule(at=st.integers(0, 30))
    def cancel(self, at: int):
        if self.live:
            s = self.live[at % len(self.live)]
            self.drop(s)
            self.scheduler.remove(s)

    @rule(at=st.integers(0, 30))
    def preempt(self, at: int):
        running = self.scheduler.running
        if running:
            self.scheduler.preempt(running[at % len(running)])

    @rule()
    def lose_the_pools(self):
        plan = self.scheduler.plan()
        if plan is not None:
            self.memory[BLOCK_SIZE:] = -1
            self.scheduler.restart()

    @rule(count=st.integers(1, 4))
    def evict(self, count: int):
        self.scheduler.prefix.evict(count)

    @invariant()
    def every_reference_has_an_owner(self):
        pool, owners = self.scheduler.pool, np.zeros(SMALL.blocks, int)
        for s in self.scheduler.running:
            for block in s.held().blocks:
                owners[block] += 1
        for block in self.scheduler.prefix.blocks():
            owners[block] += 1
        assert [pool.refs(b) for b in range(1, SMALL.blocks)] == owners[1:].tolist()
        assert pool.free == int((owners[1:] == 0).sum())

    @invariant()
    def every_request_waits_or_runs(self):
        both = [s.number for s in (*self.scheduler.waiting, *self.scheduler.running)]
        assert sorted(both) == sorted(s.number for s in self.live)

    @invariant()
    def cached_blocks_hold_their_tokens(self):
        for tokens, identity in [(s.tokens, s.identity) for s in self.live]:
            for entry in self.scheduler.prefix.chain(identity, tokens):
                at = entry.block * BLOCK_SIZE
                assert tuple(self.memory[at : at + BLOCK_SIZE]) == entry.tokens

    def teardown(self):
        for _ in range(2000):
            plan = self.scheduler.plan()
            if plan is None:
                break
            self.compute(plan)
        assert self.live == [], "somebody never ended"
        self.scheduler.prefix.clear()
        assert self.scheduler.pool.free == self.scheduler.pool.usable


Histories.TestCase.settings = settings(max_examples=500, stateful_step_count=20, deadline=None)
test_500_histories_leak_nothing_and_mix_nothing = Histories.TestCase
