"""The engine over a session in plain Python: what a request gets, whatever else happens."""

from __future__ import annotations

import threading
from dataclasses import replace

import numpy as np
import pytest

from poot.errors import DeviceLost, LaunchError, PootError, RequestError, ValidationError
from poot.llm.adapters import Adapter
from poot.llm.engine import Engine, EngineOptions
from poot.llm.layout import Layout
from poot.llm.request import Finish, Handle, Piece, Request
from poot.llm.sampling import Sampling
from poot.llm.tokenizer import read_tokenizer
from tests.support.paged_fake import LAYOUT, VOCAB, FakeSession, continued, logits_after
from tests.support.smollm2 import smollm2


class Rig:
    """An engine over a fake session, with a clock that stands still."""

    def __init__(self, layout: Layout = LAYOUT, **options: int | bool) -> None:
        self.session = FakeSession(layout)
        self.now = 100.0
        self.engine = Engine(
            self.session, layout, vocab=VOCAB, weights="digest", clock=lambda: self.now,
            options=EngineOptions(**options),  # pyright: ignore[reportArgumentType] - by name
        )  # fmt: skip

    def ask(self, prompt: list[int], count: int = 5, **options: object) -> Handle:
        request = Request(tuple(prompt), count, **options)  # pyright: ignore[reportArgumentType] - by name
        return self.engine.submit(request)

    def is_whole(self) -> bool:
        """Whether every block is free once nothing is cached."""
        scheduler = self.engine.scheduler
        scheduler.prefix.clear()
        return scheduler.pool.free == scheduler.pool.usable and not scheduler.running


def adapter(number: float) -> Adapter:
    """One that the fake session knows by a number."""
    a, b = np.zeros((1, 2), np.float32), np.full((1, 3), number, np.float32)
    return Adapter(1, {(0, "q"): (a, b)})


def test_requests_get_the_text_that_each_would_get_alone():
    rig = Rig()
    prompts = [[n, *range(n % 7 * 5)] for n in range(12)]
    handles = [rig.ask(p, 3 + i) for i, p in enumerate(prompts)]
    rig.engine.run()
    for i, (p, handle) in enumerate(zip(prompts, handles, strict=True)):
        result = handle.result(0)
        assert list(result.tokens) == continued(p, 3 + i)
        assert (result.finish.reason, result.finish.prompt) == ("length", len(p))
    assert rig.is_whole()


def test_requests_end_in_order_of_arrival_where_they_are_alike():
    rig = Rig()
    ended: list[int] = []
    for n in range(20):

        def listen(event: object, n: int = n) -> None:
            if isinstance(event, Finish):
                ended.append(n)

        rig.engine.submit(Request((n, n, n), 4), listen)
    rig.engine.run()
    assert ended == list(range(20))


def test_a_stop_id_ends_a_request_and_is_not_given():
    rig = Rig()
    text = continued([1, 2], 9)
    stop = next(t for i, t in enumerate(text) if i > 2 and t not in text[:i])
    result_of = rig.ask([1, 2], 9, stop_ids=frozenset({stop}))
    rig.engine.run()
    result = result_of.result(0)
    assert list(result.tokens) == text[: text.index(stop)]
    assert result.finish.reason == "stop"


def test_pieces_come_one_by_one_while_the_request_runs():
    rig = Rig()
    handle = rig.ask([4], 3)
    pieces: list[Piece] = []
    reader = threading.Thread(target=lambda: pieces.extend(handle))
    reader.start()
    rig.engine.run()
    reader.join(10)
    assert [p.token for p in pieces] == continued([4], 3)


def test_a_deadline_ends_a_request_that_runs_and_one_that_waits():
    rig = Rig(replace(LAYOUT, decode_rows=(1,)))
    first, second = rig.ask([1], 50, deadline=5.0), rig.ask([2], 5, deadline=7.0)
    for _ in range(3):
        rig.engine.step()
    rig.now += 5.0
    rig.engine.step()
    assert first.result(0).finish.reason == "deadline"
    assert list(first.result(0).tokens) == continued([1], 3)
    rig.now += 2.0
    rig.engine.run()
    assert second.result(0).finish.reason == "deadline"
    assert rig.is_whole()


STAGES = ("queued", "allocated", "first chunk", "decode", "finished", "twice")


@pytest.mark.parametrize("stage", STAGES)
def test_case_101_a_cancel_at_any_stage_frees_every_block_and_hurts_nobody(stage: str):
    rig = Rig()
    other = rig.ask([9, 9, 9], 12)
    victim = rig.ask(list(range(40)), 6)
    steps = {"queued": 0, "allocated": 1, "first chunk": 2, "decode": 6, "finished": 60, "twice": 3}
    for _ in range(steps[stage]):
        rig.engine.step()
    victim.cancel()
    if stage == "twice":
        victim.cancel()
    rig.engine.run()
    victim.cancel()
    rig.engine.run()
    assert list(other.result(0).tokens) == continued([9, 9, 9], 12)
    assert victim.result(0).finish.reason == ("length" if stage == "finished" else "cancelled")
    assert rig.is_whole()


def test_case_28_a_preempted_request_resumes_with_the_text_it_would_have_had():
    rig = Rig(replace(LAYOUT, blocks=7))
    handles = [rig.ask([n] * 20, 40) for n in range(4)]
    rig.engine.run()
    assert rig.engine.metrics().preemptions > 0
    for n, handle in enumerate(handles):
        assert list(handle.result(0).tokens) == continued([n] * 20, 40)
    assert rig.is_whole()


def test_case_95_a_prompt_sent_twice_gives_the_same_text_and_hits_the_cache():
    for size, hits in ((15, 0), (16, 15), (17, 16), (32, 31)):
        rig = Rig()
        prompt = [(7 * i) % VOCAB for i in range(size)]
        results = []
        for _ in range(2):
            handle = rig.ask(prompt, 4)
            rig.engine.run()
            results.append(handle.result(0))
        assert results[0].tokens == results[1].tokens == tuple(continued(prompt, 4))
        assert (results[0].finish.cached, results[1].finish.cached) == (0, hits)


def test_case_96_scores_of_the_prompt_are_refused_and_the_engine_lives():
    rig = Rig()
    with pytest.raises(RequestError, match="log-probabilities of the prompt's own tokens"):
        rig.ask([1, 2], prompt_logprobs=True)
    handle = rig.ask([1, 2])
    rig.engine.run()
    assert list(handle.result(0).tokens) == continued([1, 2], 5)


def test_case_90_adapters_share_no_cached_values():
    rig = Rig()
    prompt = [*list(range(32)), 5]
    rig.engine.load_adapter("a", adapter(1.5))
    rig.engine.load_adapter("b", adapter(2.5))
    for name, number in ((None, 0.0), ("a", 1.5), ("b", 2.5)):
        for hits in (0, 32):
            handle = rig.ask(prompt, 4, adapter=name)
            rig.engine.run()
            assert list(handle.result(0).tokens) == continued(prompt, 4, number)
            assert handle.result(0).finish.cached == hits
    rig.engine.load_adapter("a", adapter(1.5))  # equal bytes, another load
    handle = rig.ask(prompt, 4, adapter="a")
    rig.engine.run()
    assert handle.result(0).finish.cached == 0


def test_an_adapter_is_reloaded_while_a_request_runs_with_the_old_one():
    rig = Rig()
    rig.engine.load_adapter("a", adapter(1.5))
    old = rig.ask([1, 2, 3], 20, adapter="a")
    for _ in range(4):
        rig.engine.step()
    rig.engine.load_adapter("a", adapter(9.0))
    new = rig.ask([1, 2, 3], 20, adapter="a")
    rig.engine.run()
    assert list(old.result(0).tokens) == continued([1, 2, 3], 20, 1.5)
    assert list(new.result(0).tokens) == continued([1, 2, 3], 20, 9.0)


def test_an_adapter_that_is_unloaded_serves_who_has_it_and_nobody_else():
    rig = Rig()
    rig.engine.load_adapter("a", adapter(1.5))
    running = rig.ask([1], 9, adapter="a")
    rig.engine.step()
    late = rig.ask([2], 9, adapter="a")
    rig.engine.unload_adapter("a")
    with pytest.raises(RequestError, match="there is no adapter 'a'; loaded: none"):
        rig.ask([3], 9, adapter="a")
    rig.engine.run()
    assert list(running.result(0).tokens) == continued([1], 9, 1.5)
    assert list(late.result(0).tokens) == continued([2], 9, 1.5)
    for n in range(3):
        rig.engine.load_adapter(str(n), adapter(n))
    with pytest.raises(RequestError, match="all 3 places for adapters are in use"):
        rig.engine.load_adapter("more", adapter(1))


def test_case_92_a_salt_parts_the_caches_of_tenants():
    rig = Rig()
    for salt, hits in (("one", 0), ("two", 0), ("one", 32), ("", 0)):
        handle = rig.ask([3] * 33, 2, salt=salt)
        rig.engine.run()
        assert handle.result(0).finish.cached == hits


@pytest.mark.parametrize("who", ["engine", "session"])
def test_case_103_after_a_change_of_weights_nothing_is_used_again(who: str):
    rig = Rig()
    handle = rig.ask([3] * 33, 2)
    rig.engine.run()
    running = rig.ask([4] * 40, 12)
    for _ in range(5):
        rig.engine.step()
    getattr(rig, who).rebind({})
    again = rig.ask([3] * 33, 2)
    rig.engine.run()
    assert again.result(0).finish.cached == 0
    assert handle.result(0).tokens == again.result(0).tokens
    assert list(running.result(0).tokens) == continued([4] * 40, 12)


def test_weights_bound_anew_in_a_step_leave_nothing_of_it():
    rig = Rig()
    handle = rig.ask([3] * 33, 4)
    rig.engine.step()
    step = rig.session.step

    def changed(*given: object, **slots: object) -> object:
        rig.session.step = step
        out = step(*given, **slots)
        rig.session.rebind({})
        return out

    rig.session.step = changed
    rig.engine.step()
    rig.engine.run()
    assert list(handle.result(0).tokens) == continued([3] * 33, 4)
    again = rig.ask([3] * 33, 4)
    rig.engine.run()
    assert again.result(0).finish.cached == 32
    assert rig.is_whole()


@pytest.mark.parametrize("at", range(8))
def test_a_step_that_stops_part_way_costs_time_and_no_token(at: int):
    rig = Rig()
    prompts = [[n] * (3 + 9 * n) for n in range(1, 5)]
    handles = [rig.ask(p, 8) for p in prompts]
    rig.session.faults.at = {at}
    rig.session.faults.clears = at % 2
    rig.engine.run()
    for p, handle in zip(prompts, handles, strict=True):
        assert list(handle.result(0).tokens) == continued(p, 8)
    assert rig.engine.metrics().failures == 1
    assert rig.is_whole()


def test_after_failures_in_a_row_every_request_is_told_and_no_more_are_taken():
    rig = Rig(retries=2)
    handles = [rig.ask([n], 5) for n in range(3)]
    rig.session.faults.at = set(range(100))
    rig.engine.run()
    for handle in handles:
        with pytest.raises(LaunchError, match="as asked"):
            handle.result(0)
    assert len(rig.session.steps) == 3
    with pytest.raises(RequestError, match="the engine has failed"):
        rig.ask([1])
    assert rig.is_whole()


def test_a_lost_device_ends_all_at_once():
    rig = Rig()
    handle = rig.ask([1], 5)
    rig.session.faults.at, rig.session.faults.error = {1}, DeviceLost
    rig.engine.run()
    with pytest.raises(DeviceLost):
        list(handle)
    assert isinstance(rig.engine.failed, DeviceLost)


def test_a_step_that_a_guard_stops_ends_its_requests_alone():
    rig = Rig(replace(LAYOUT, decode_rows=(1,)))
    first, second = rig.ask([1], 5), rig.ask([2], 5)
    rig.session.faults.at, rig.session.faults.error = {2}, ValidationError
    rig.engine.run()
    with pytest.raises(ValidationError):
        first.result(0)
    assert list(second.result(0).tokens) == continued([2], 5)
    assert rig.is_whole()


def test_logits_that_are_no_numbers_end_their_request_and_are_not_cached():
    rig = Rig()
    bad = [8] * 20
    rig.session.faults.bad_logits_of = tuple(bad)
    victim, other = rig.ask(bad), rig.ask([1] * 20)
    rig.engine.run()
    with pytest.raises(ValidationError, match="the logit of token 5 is nan"):
        victim.result(0)
    assert list(other.result(0).tokens) == continued([1] * 20, 5)
    rig.session.faults.bad_logits_of = ()
    again = rig.ask(bad)
    rig.engine.run()
    assert again.result(0).finish.cached == 0


def test_a_seed_gives_one_text_alone_in_company_and_after_a_preemption():
    how = Sampling(temperature=1.0, top_k=9, top_p=0.9, min_p=0.01, penalty=1.2, seed=7)
    alone = Rig()
    want = alone.ask([5] * 20, 30, sampling=how)
    alone.engine.run()
    crowd = Rig(replace(LAYOUT, blocks=7))
    handles = [crowd.ask([n] * 20, 30, sampling=replace(how, seed=n)) for n in range(3)]
    got = crowd.ask([5] * 20, 30, sampling=how)
    crowd.engine.run()
    assert crowd.engine.metrics().preemptions > 0
    assert got.result(0).tokens == want.result(0).tokens
    assert len({h.result(0).tokens for h in handles}) == 3


def test_logprobs_are_of_the_softmax_before_any_option():
    rig = Rig()
    handle = rig.ask([5], 2, logprobs=3, sampling=Sampling(temperature=2.0, seed=3))
    rig.engine.run()
    result = handle.result(0)
    text = [5]
    for token, row in zip(result.tokens, result.logprobs, strict=True):
        logits = logits_after(text).astype(np.float64)
        values = logits - np.log(np.exp(logits).sum())
        assert row.token == token
        assert row.logprob == pytest.approx(values[token], abs=1e-6)
        assert [t for t, _ in row.top] == np.argsort(-values)[:3].tolist()
        text.append(token)


def test_stop_strings_end_a_text_before_they_are_shown():
    tokenizer = read_tokenizer(smollm2().metadata, "smollm2")
    session = FakeSession()
    engine = Engine(session, LAYOUT, vocab=VOCAB, weights="d", tokenizer=tokenizer)
    whole = engine.submit(Request((9,), 12))
    engine.run()
    text = whole.result(0).text
    assert text == tokenizer.decode(continued([9], 12))
    stop = text[4:7]
    at = text.index(stop)
    cut = engine.submit(Request((9,), 12, stops=(stop, "not in it")))
    engine.run()
    result = cut.result(0)
    assert (result.text, result.finish.reason, result.finish.stop) == (text[:at], "stop", stop)


@pytest.mark.parametrize(
    "options, words",
    [
        ({"prompt": [VOCAB]}, "outside the vocabulary of 64"),
        ({"prompt": [-1]}, "outside the vocabulary"),
        ({"prompt": [1] * 90}, "pass the cache's capacity of 96"),
        ({"stops": ("x",)}, "stop strings need a tokenizer"),
        ({"adapter": "none such"}, "there is no adapter 'none such'"),
    ],
)
def test_what_can_not_be_served_is_refused_at_the_submit(options: dict[str, object], words: str):
    rig = Rig()
    with pytest.raises(RequestError, match=words):
        rig.ask(**{"prompt": [1], "count": 10} | options)  # pyright: ignore[reportArgumentType] - by name
    assert rig.engine.metrics().submitted == 0


def test_a_full_line_takes_no_more_until_one_ends():
    rig = Rig(most_waiting=2)
    handles = [rig.ask([1]), rig.ask([2])]
    with pytest.raises(RequestError, match="2 requests are in line already"):
        rig.ask([3])
    handles[0].cancel()
    rig.engine.step()
    rig.ask([3])
    rig.engine.run()


def test_many_threads_submit_to_an_engine_that_runs_in_its_own():
    rig = Rig(replace(LAYOUT, blocks=40))
    rig.engine.start()
    with pytest.raises(RequestError, match="runs already"):
        rig.engine.start()
    got: dict[int, tuple[int, ...]] = {}

    def ask(n: int) -> None:
        got[n] = rig.ask([n % VOCAB, n // VOCAB], 6).result(30).tokens

    threads = [threading.Thread(target=ask, args=(n,)) for n in range(100)]
    for thread in threads:
        thread.start()
    rig.engine.load_adapter("a", adapter(1.0))
    for thread in threads:
        thread.join(60)
    rig.engine.stop()
    assert {n: list(t) for n, t in got.items()} == {
        n: continued([n % VOCAB, n // VOCAB], 6) for n in range(100)
    }
    with pytest.raises(RequestError, match="takes no requests"):
        rig.ask([1])
    assert rig.is_whole()


@pytest.mark.parametrize("is_own", [True, False], ids=["its own thread", "the caller's"])
def test_a_stop_lets_requests_end_or_cancels_them(is_own: bool):
    def started() -> tuple[Rig, Handle]:
        rig = Rig()
        if is_own:
            rig.engine.start()
        return rig, rig.ask([1], 30)

    rig, handle = started()
    rig.engine.stop()
    assert list(handle.result(5).tokens) == continued([1], 30)
    rig, handle = started()
    rig.engine.stop(drain=False)
    assert handle.result(5).finish.reason in ("cancelled", "length")
    assert rig.is_whole()


def test_an_error_of_a_command_reaches_the_thread_that_gave_it():
    rig = Rig()
    rig.engine.start()
    with pytest.raises(PootError, match="there is no adapter"):
        rig.engine.unload_adapter("none")
    rig.engine.stop()


def test_metrics_are_read_by_others_while_the_engine_steps():
    rig = Rig()
    rig.engine.start()
    handles = [rig.ask([n, n % 5] * 9, 20) for n in range(12)]
    steps = [rig.engine.metrics().steps for _ in range(50)]
    assert steps == sorted(steps)
    for handle in handles:
        handle.result(20)
    rig.engine.stop()
    assert rig.engine.metrics().finished == 12


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_when_the_engines_thread_ends_by_a_mistake_everybody_is_told():
    rig = Rig()
    handles = [rig.ask([n], 9) for n in range(3)]
    rig.engine.step()
    rig.engine.scheduler.plan = lambda: 1 // 0  # pyright: ignore[reportAttributeAccessIssue] - a mistake
    rig.engine.start()
    for handle in handles:
        with pytest.raises(PootError, match="the engine's thread ended: ZeroDivisionError"):
            handle.result(10)
    with pytest.raises(RequestError, match="the engine has failed"):
        rig.ask([1])
    assert rig.engine.metrics().finished == 3
    rig.engine.stop()


def test_metrics_count_what_was_done():
    rig = Rig()
    for n in range(3):
        rig.ask([n] * 16, 4)
    rig.engine.run()
    rig.ask([0] * 20, 4).cancel()
    rig.engine.run()
    m = rig.engine.metrics()
    assert (m.submitted, m.finished, m.new_tokens) == (4, 4, 12)
    assert m.by_reason == (("cancelled", 1), ("length", 3))
    assert (m.running, m.waiting, m.pool_use) == (0, 0, 0.0)
    assert m.rows == 3 * 16 + 3 * 4
    assert m.padding == pytest.approx(3 / 60)
    assert "4 of 4 requests ended (1 cancelled, 3 length); 12 tokens" in str(m)
