"""Serves many requests at once from one session: continuous batching over paged pools.

`submit` may be called from any thread. Steps run in the thread that calls `step`, or in the
engine's own after `start`. Between two steps requests come in, are cancelled and expire.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from poot.errors import (
    BackendError,
    BindError,
    DeviceLost,
    PootError,
    RequestError,
    SessionBusy,
    ValidationError,
)
from poot.llm.adapters import Adapter, AdapterShelf
from poot.llm.faults import fault, patiently
from poot.llm.job import Job
from poot.llm.layout import Layout
from poot.llm.metrics import Metrics, Tally
from poot.llm.prefix import Identity
from poot.llm.request import (
    CANCELLED,
    DEADLINE,
    ERROR,
    LENGTH,
    STOP,
    Handle,
    Listener,
    Request,
)
from poot.llm.scheduler import Part, Scheduler, Sequence, StepPlan
from poot.llm.stepper import Bound, Drawn, Outcome, Stepper, Want
from poot.llm.tokenizer import Tokenizer

T = TypeVar("T")
IDLE_S = 0.05  # how long a waiting engine sleeps at most before it looks at deadlines


class Overloaded(RequestError):
    """The line is full; later there may be room."""


class EngineStopped(RequestError):
    """The engine takes no requests any more."""


@dataclass(frozen=True, slots=True)
class EngineOptions:
    """`most_waiting` requests may stand in line; after `retries` failed steps in a row the engine
    gives up. `caching` turns the prefix cache on."""

    most_waiting: int = 1024
    retries: int = 3
    caching: bool = True


class Engine:
    """Requests over one session of a paged program. `weights` is the content digest of the
    checkpoint's tensors."""

    def __init__(
        self,
        session: Bound,
        layout: Layout,
        *,
        vocab: int,
        weights: str,
        tokenizer: Tokenizer | None = None,
        options: EngineOptions | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.layout = layout
        self.options = options or EngineOptions()
        self.scheduler = Scheduler(layout, caching=self.options.caching)
        self.adapters = AdapterShelf(session, layout)
        self._stepper = Stepper(session, layout, vocab)
        self._vocab = vocab
        self._tokenizer = tokenizer
        self._weights = weights
        self._session = session
        self._generation = 1
        self._binds = session.binds  # of the weights that what is held was computed with
        self._clock = clock
        self._tally = Tally()
        self._wake = threading.Condition()
        self._stepping = threading.RLock()
        self._steps_in: int | None = None  # the thread that is inside a step
        self._inbox: list[Callable[[], None]] = []
        self._jobs: dict[Handle, Job] = {}
        self._by_sequence: dict[Sequence, Job] = {}
        self._count = 0
        self._part: Part | None = None  # what a step computes just now
        self._in_line = 0
        self._failed: PootError | None = None
        self._failures_in_row = 0
        self._closing = False
        self._loops = False  # whether the engine's own thread takes in what comes
        self._thread: threading.Thread | None = None

    # Any thread

    def submit(self, request: Request, listener: Listener | None = None) -> Handle:
        """Puts a request in line, with the adapter that its name means now. Raises RequestError for
        one that can never run or an adapter that isn't loaded; Overloaded where the line is full;
        EngineStopped after `stop` or a failure."""
        self._check(request)
        handle = Handle(request, self._ask_cancel, listener)
        now = self._clock()
        with self._wake:
            if self._failed is not None:
                raise EngineStopped(f"the engine has failed: {self._failed.message}")
            if self._closing:
                raise EngineStopped("the engine is stopping and takes no requests")
            if self._in_line >= self.options.most_waiting:
                raise Overloaded(
                    f"{self._in_line} requests are in line already, the most there may be; try "
                    "again later"
                )
            place = 0 if request.adapter is None else self.adapters.hold(request.adapter)
            self._in_line += 1
            self._count += 1
            self._tally.submitted += 1
            number = self._count
            self._inbox.append(lambda: self._begin(handle, number, now, place))
            self._wake.notify_all()
        return handle

    def _check(self, request: Request) -> None:
        size = len(request.prompt)
        self.scheduler.check(size, size + request.max_tokens)
        if not all(0 <= token < self._vocab for token in request.prompt):
            raise RequestError(f"a token of the prompt is outside the vocabulary of {self._vocab}")
        if request.stops and self._tokenizer is None:
            raise RequestError("stop strings need a tokenizer; give the engine one")
        if any(not stop for stop in request.stops):
            raise RequestError("a stop string is empty; needs one character or more")

    def _ask_cancel(self, handle: Handle) -> None:
        with self._wake:
            self._inbox.append(lambda: self._end_handle(handle, CANCELLED))
            self._wake.notify_all()

    def load_adapter(self, name: str, adapter: Adapter) -> None:
        """Makes an adapter known by a name, between two steps. Under a name that is there already,
        requests that run go on with the old one; new ones get this one. Raises RequestError where
        it doesn't fit, or no place is free."""
        self._need_between("load_adapter")
        self._between(lambda: patiently(lambda: self.adapters.load(name, adapter)))

    def unload_adapter(self, name: str) -> None:
        """Forgets a name; requests that run with it go on. Raises RequestError for one unknown."""
        self._need_between("unload_adapter")
        self._between(lambda: self.adapters.unload(name))

    def rebind(self, weights: Mapping[str, object], digest: str | None = None) -> None:
        """Puts other arrays in the place of some of the session's Weights, between two steps.
        `digest`: the content digest of all Weights after it. Nothing computed before is used any
        more, and what runs is computed anew. A rebind of the session itself is seen too. Raises
        what `poot.session.Session.rebind` raises."""

        def change() -> None:
            patiently(lambda: self._session.rebind(weights))
            self._changed(digest)

        self._need_between("rebind")
        self._between(change)

    def _changed(self, digest: str | None) -> None:
        self._binds = self._session.binds
        self._generation += 1
        self._weights = self._weights if digest is None else digest
        self.scheduler.restart()
        for sequence, job in self._by_sequence.items():
            sequence.identity = self._identity(job.handle.request, sequence.adapter)

    def _need_between(self, what: str) -> None:
        """Raises RequestError in a listener: it is called from inside a step."""
        if self._steps_in == threading.get_ident():
            raise RequestError(
                f"{what} can't be called from a request's listener, which runs inside a step; call "
                "it from another thread, or after the step"
            )

    def _between(self, action: Callable[[], T]) -> T:
        """Runs an action in the stepping thread, between two steps."""
        done: Future[T] = Future()

        def run() -> None:
            try:
                done.set_result(action())
            except BaseException as e:  # the caller's to see; the engine goes on
                done.set_exception(e)

        with self._wake:
            is_far = self._loops and self._thread is not threading.current_thread()
            if is_far:
                self._inbox.append(run)
                self._wake.notify_all()
        if is_far:
            return done.result()
        with self._stepping:
            return action()

    def metrics(self) -> Metrics:
        """What has been done so far, between two steps."""
        return self._between(lambda: _metrics(self._tally, self.scheduler, self._in_line))

    @property
    def failed(self) -> PootError | None:
        """What ended the engine, if anything did."""
        return self._failed

    # The engine's thread

    def start(self) -> None:
        """Steps in a thread of its own until `stop`."""
        if self._thread is not None:
            raise RequestError("the engine runs already")
        self._loops = True
        self._thread = threading.Thread(target=self._loop, name="poot-engine", daemon=True)
        self._thread.start()

    def stop(self, *, drain: bool = True, timeout: float | None = None) -> None:
        """Takes no more requests. With `drain` those submitted run to their end, within `timeout`
        seconds; the rest are cancelled. Raises RequestError in a listener."""
        self._need_between("stop")
        with self._wake:
            self._closing = True
            self._wake.notify_all()
        until = None if timeout is None else time.monotonic() + timeout
        if drain:
            self._drain(until)
        with self._wake:
            self._inbox.append(self._cancel_all)
            self._wake.notify_all()
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        else:
            self.step()

    def _drain(self, until: float | None) -> None:
        while self._in_line and self._failed is None:
            if until is not None and time.monotonic() >= until:
                return
            if self._thread is None:
                self.step()
            else:
                time.sleep(IDLE_S / 10)

    def _cancel_all(self) -> None:
        for handle in list(self._jobs):
            self._end_handle(handle, CANCELLED)

    def _loop(self) -> None:
        try:
            while self._turn():
                pass
        except BaseException as e:
            self._crashed(e)
            raise

    def _turn(self) -> bool:
        """One step, or a wait for something to do. False where there will be nothing more."""
        if self.step():
            return True
        with self._wake:
            if self._closing and not self._inbox and not self._in_line:
                self._loops = False
                return False
            if not self._inbox:
                self._wake.wait(IDLE_S)
        return True

    def _crashed(self, error: BaseException) -> None:
        """The engine's thread ends by what it doesn't know: every request is told, and commands
        that wait are answered."""
        with self._wake:
            self._loops = False
        self._give_up(BackendError(f"the engine's thread ended: {type(error).__name__}: {error}"))
        self._take_in()

    def run(self) -> None:
        """Steps until nothing is left to do."""
        while self.step() or self._in_line:
            pass

    def step(self) -> bool:
        """Takes in what came, and runs one step. False where there was nothing to do. Raises
        RequestError in a listener."""
        self._need_between("step")
        with self._stepping:
            self._steps_in = threading.get_ident()
            try:
                return self._step()
            finally:
                self._steps_in = None

    def _step(self) -> bool:
        self._take_in()
        if self._failed is not None:
            return False
        if self._session.binds != self._binds:
            self._changed(None)
        self._expire()
        plan = self.scheduler.plan()
        if plan is None:
            return False
        began = time.perf_counter()
        try:
            self._run(plan)
            self._failures_in_row = 0
        except Exception as e:
            self._tally.failures += 1
            self._after_failure(plan, e)
        self._tally.busy += time.perf_counter() - began
        self._tally.steps += 1
        return True

    def _take_in(self) -> None:
        for _ in range(len(self._inbox)):  # what an action adds waits for the next time
            with self._wake:
                action = self._inbox.pop(0)
            action()

    def _begin(self, handle: Handle, number: int, now: float, place: int) -> None:
        job = Job(handle, now, self._tokenizer, place)
        self._jobs[handle] = job
        try:
            self._line_up(job, number)
        except Exception as e:
            self._end(job, ERROR, fault(e, "the request could not be put in line"))

    def _line_up(self, job: Job, number: int) -> None:
        request, place = job.handle.request, job.place
        if self._failed is not None:
            self._end(job, ERROR, self._failed)
            return
        tokens = list(request.prompt)
        limit = len(tokens) + request.max_tokens
        identity = self._identity(request, place)
        sequence = Sequence(number, tokens, limit, identity, place)
        job.sequence = sequence
        self._by_sequence[sequence] = job
        self.scheduler.add(sequence)

    def _identity(self, request: Request, place: int) -> Identity:
        adapter = self.adapters.generation(place)
        return Identity(self._weights, self._generation, adapter, request.salt)

    def _expire(self) -> None:
        now = self._clock()
        for job in list(self._jobs.values()):
            if job.is_late(now):
                self._end(job, DEADLINE)

    def _run(self, plan: StepPlan) -> None:
        self._part = None
        for source, target in plan.copies:
            patiently(lambda pair=(source, target): self._stepper.copy(*pair))
        for part in plan.parts:
            self._part = part
            outcomes = patiently(lambda part=part: self._stepper.run(part, self._want))
            if self._session.binds != self._binds:
                return  # of which Weights this came is not known: the next step computes it anew
            self._tally.rows += part.bucket * part.tokens
            self._tally.padded += part.padding
            for (sequence, count), outcome in zip(part.rows, outcomes, strict=True):
                try:
                    self._advance(sequence, count, outcome)
                except Exception as e:
                    if sequence in self._by_sequence:
                        self._end(self._by_sequence[sequence], ERROR, fault(e, "a token was lost"))

    def _want(self, sequence: Sequence) -> Want:
        request = self._by_sequence[sequence].handle.request
        step = len(sequence.tokens) - len(request.prompt)
        return Want(request.sampling, step, sequence.tokens, request.logprobs)

    def _advance(self, sequence: Sequence, count: int, outcome: Outcome) -> None:
        job = self._by_sequence[sequence]
        if isinstance(outcome, ValidationError):
            self.scheduler.forget(sequence)
            self._end(job, ERROR, outcome)
            return
        self.scheduler.done(sequence, count)
        if isinstance(outcome, Drawn):
            if outcome.token in job.handle.request.stop_ids:
                self._end(job, STOP)
                return
            self._tally.new_tokens += 1
            sequence.tokens.append(outcome.token)
            if job.first is None:
                job.first = self._clock() - job.began
                self._tally.first.append(job.first)
            is_over = job.show(outcome)
            if job.handle.fault is not None:
                self._end(job, ERROR, job.handle.fault)
            elif is_over:
                self._end(job, STOP)
            elif len(sequence.tokens) == sequence.limit:
                self._end(job, LENGTH)

    def _after_failure(self, plan: StepPlan, error: Exception) -> None:
        """A step that a guard or a check stopped has changed nothing: its requests end with the
        error. One that the driver stopped may have left pools half written: they are zeroed, and
        what runs is computed anew. So too after an error that nobody foresaw, but for the
        requests of the part that met it, which end with it."""
        last = error if isinstance(error, BackendError | SessionBusy) else None
        if last is None:
            is_known = isinstance(error, BindError | ValidationError)
            told = error if is_known else fault(error, "a step failed")
            parts = plan.parts if is_known or self._part is None else (self._part,)
            for sequence in {s for part in parts for s, _ in part.rows}:
                if sequence in self._by_sequence:
                    self._end(self._by_sequence[sequence], ERROR, told)
            if is_known:
                return
        self.scheduler.restart()
        while True:
            self._failures_in_row += last is not None
            if isinstance(last, DeviceLost) or self._failures_in_row > self.options.retries:
                self._give_up(last or fault(error, "a step failed"))
                return
            try:
                patiently(self._stepper.clear)
                return
            except Exception as again:
                last = again if isinstance(again, PootError) else fault(again, "clearing failed")

    def _give_up(self, error: PootError) -> None:
        with self._wake:
            self._failed = error
        for job in list(self._jobs.values()):
            self._end(job, ERROR, error)

    def _end_handle(self, handle: Handle, reason: str) -> None:
        job = self._jobs.get(handle)
        if job is not None:
            self._end(job, reason)

    def _end(self, job: Job, reason: str, error: PootError | None = None) -> None:
        """Frees what a request holds, then says that it has ended."""
        self._jobs.pop(job.handle)
        cached = 0
        if job.sequence is not None:
            cached = job.sequence.cached
            self._by_sequence.pop(job.sequence)
            self.scheduler.remove(job.sequence)
        if job.place:
            self.adapters.let_go(job.place)
        self._tally.reasons[reason] = self._tally.reasons.get(reason, 0) + 1
        with self._wake:
            self._in_line -= 1
        job.close(reason, self._clock(), cached, error)


def _metrics(tally: Tally, scheduler: Scheduler, in_line: int) -> Metrics:
    prefix, pool = scheduler.prefix, scheduler.pool
    running = len(scheduler.running)
    cached = prefix.evictable()
    first = np.array(tally.first) if tally.first else np.zeros(1)
    return Metrics(
        steps=tally.steps,
        submitted=tally.submitted,
        finished=sum(tally.reasons.values()),
        by_reason=tuple(sorted(tally.reasons.items())),
        new_tokens=tally.new_tokens,
        prompt_tokens=prefix.asked,
        hit_tokens=prefix.hits,
        rows=tally.rows,
        padding=tally.padded / tally.rows if tally.rows else 0.0,
        preemptions=scheduler.preemptions,
        evictions=prefix.evicted,
        failures=tally.failures,
        running=running,
        waiting=in_line - running,
        pool_use=(pool.usable - pool.free - cached) / pool.usable,
        cached_blocks=cached,
        tokens_per_second=tally.new_tokens / tally.busy if tally.busy else 0.0,
        first_token=(float(np.median(first)), float(first.max())),
    )
