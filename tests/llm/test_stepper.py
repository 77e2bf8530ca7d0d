"""The arrays of a step, and what is read back."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from poot.errors import RequestError, ValidationError
from poot.llm.prefix import Identity
from poot.llm.sampling import Sampling
from poot.llm.scheduler import Part, Scheduler, Sequence
from poot.llm.stepper import Drawn, Stepper, Want, logprobs, seen_bits
from tests.support.paged_fake import LAYOUT, VOCAB, FakeSession, Held, continued, logits_after

GREEDY = Want(Sampling(), 0, (), None)


def begun(*prompts: list[int]) -> tuple[FakeSession, Stepper, Scheduler]:
    session, scheduler = FakeSession(), Scheduler(LAYOUT)
    for n, prompt in enumerate(prompts):
        scheduler.add(Sequence(n, list(prompt), len(prompt) + 8, Identity("d", 1)))
    return session, Stepper(session, LAYOUT, VOCAB), scheduler


def test_rows_that_have_tokens_left_are_not_asked_for_one():
    _, stepper, scheduler = begun([3] * 20)
    plan = scheduler.plan()
    assert plan is not None
    assert plan.prefill is not None
    assert stepper.run(plan.prefill, lambda s: GREEDY) == [None]


def test_each_finished_row_gets_its_own_token():
    _, stepper, scheduler = begun([3], [4])
    plan = scheduler.plan()
    assert plan is not None
    assert plan.decode is not None
    wants = {0: GREEDY, 1: Want(Sampling(), 0, (), 2)}
    first, second = stepper.run(plan.decode, lambda s: wants[s.number])
    assert first == Drawn(continued([3], 1)[0], None)
    assert isinstance(second, Drawn)
    assert second.token == continued([4], 1)[0]
    assert second.logprob is not None
    assert second.logprob.token == second.token == second.logprob.top[0][0]


def test_a_row_of_a_shared_block_is_not_written():
    session, stepper, scheduler = begun(list(range(17)))
    plan = scheduler.plan()
    assert plan is not None
    sequence = scheduler.running[0]
    scheduler.pool.share(sequence.held().blocks[0])
    with pytest.raises(RequestError, match="shared block"):
        stepper.run(Part(((sequence, 4),), 1, 4), lambda s: GREEDY)
    assert session.steps == []


def test_logits_that_are_no_numbers_are_the_rows_error():
    session, stepper, scheduler = begun([3], [4])
    session.faults.bad_logits_of = (4,)
    plan = scheduler.plan()
    assert plan is not None
    assert plan.decode is not None
    first, second = stepper.run(plan.decode, lambda s: GREEDY)
    assert isinstance(first, Drawn)
    assert isinstance(second, ValidationError)


class Sampled(FakeSession):
    """Answers the entry points that choose tokens: with 7, or -1 where top_k is 9."""

    def step(self, entry: str = "main", /, **slots: object) -> object:
        self.given = slots
        rows = len(np.asarray(slots["pos"]))
        if not entry.startswith("sample"):
            return super().step(entry, **slots)
        ids = np.where(np.asarray(slots["how.top_k"]) == 9, -1, 7).astype(np.int32)
        logits = np.stack([logits_after([3])] * rows)
        return {"ids": Held(ids), "top": Held(logits.max(1)), "logits": Held(logits)}


def test_the_device_chooses_and_the_host_does_where_it_can_not():
    session, (_, _, scheduler) = Sampled(), begun([3], [4], [5])
    stepper = Stepper(session, replace(LAYOUT, sampled=True), VOCAB)
    plan = scheduler.plan()
    assert plan is not None
    assert plan.decode is not None
    hows = [
        Sampling(temperature=1.0, seed=5, top_k=VOCAB + 3),
        Sampling(temperature=0.5, top_k=9, penalty=1.5, min_p=0.25, top_p=0.5, seed=2**32 - 1),
        Sampling(),
    ]
    got = stepper.run(plan.decode, lambda s: Want(hows[s.number], 3, (1, 40), None))
    from_host = got[1]
    assert got[0] == Drawn(7, None)
    assert isinstance(from_host, Drawn)
    assert from_host.token >= 0
    given = {k.removeprefix("how."): np.asarray(v) for k, v in session.given.items() if "how" in k}
    assert given["top_k"].tolist() == [0, 9, 0, 0]
    assert given["seed"].tolist() == [5, 2**32 - 1, 0, 0]
    assert given["step"].tolist() == [3, 3, 3, 0]
    np.testing.assert_array_equal(given["penalty"], np.float32([1, 1.5, 1, 1]))
    assert given["seen"].tolist() == [[0, 0], [2, 256], [0, 0], [0, 0]]


def test_greedy_rows_use_the_entry_point_without_choices():
    session, (_, _, scheduler) = Sampled(), begun([3])
    plan = scheduler.plan()
    assert plan is not None
    assert plan.decode is not None
    Stepper(session, replace(LAYOUT, sampled=True), VOCAB).run(plan.decode, lambda s: GREEDY)
    assert session.steps == ["decode_1"]


def test_where_tokens_are_counted_the_host_chooses():
    session, (_, _, scheduler) = Sampled(), begun([3])
    plan = scheduler.plan()
    assert plan is not None
    assert plan.decode is not None
    stepper = Stepper(session, replace(LAYOUT, sampled=True), VOCAB)
    best = int(np.argmax(logits_after([3])))
    how = Sampling(frequency=50.0)
    got = stepper.run(plan.decode, lambda s: Want(how, 2, (best, 3, best), None))
    assert session.steps == ["decode_1"]
    assert isinstance(got[0], Drawn)
    assert got[0].token not in (best, 3)


def test_seen_bits_are_set_once_for_each_token():
    assert seen_bits([], 2).tolist() == [0, 0]
    assert seen_bits([0, 31, 32, 32, 63], 2).tolist() == [2**31 + 1, 2**31 + 1]


def test_logprobs_name_equal_ones_by_rising_id():
    row = logprobs(np.array([1, 3, 3, 0], np.float32), 0, 3)
    assert [t for t, _ in row.top] == [1, 2, 0]
    assert np.exp([p for _, p in logprobs(np.zeros(4, np.float32), 1, 4).top]).sum() == (
        pytest.approx(1.0)
    )
