"""SmolLM2 on one device: logits against the oracle, text, tokens a second with and without replay,
and what replay has to keep. Prints a short table last.

python -m benchmarks.smollm2 --target cuda:0 --out results.json
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

import poot
from benchmarks.record import save
from poot import ops
from poot.api import Program
from poot.backends.cuda.device import CudaDevice
from poot.errors import CaptureUnavailable
from poot.llm.load import LoadedModel, load_model, read_checkpoint
from poot.llm.sampling import Sampling
from poot.session import Session
from tests.support.smollm2 import smollm2_path

PROMPT = "The three primary colours are red, blue and"
CAPACITY = 128
BUCKETS = (1, 16)
WITHIN = 2e-3


@dataclass(slots=True)
class Sheet:
    """Results by name, and which of them were not as they have to be."""

    rows: dict[str, object] = field(default_factory=dict[str, object])
    failed: list[str] = field(default_factory=list[str])

    def note(self, name: str, value: object, is_right: bool = True) -> None:
        self.rows[name] = value
        if not is_right:
            self.failed.append(name)
        print(f"{name:<44} {value}{'' if is_right else '   FAILED'}", flush=True)


def decode(session: Session, token: int, pos: int) -> np.ndarray:
    slots = {"tokens": np.array([token], np.int32), "pos": np.int32(pos)}
    return np.asarray(session.step("decode", **slots), np.float32)


def run_tokens(session: Session, tokens: Sequence[int]) -> np.ndarray:
    """Logits of each token, fed one by one from an empty cache."""
    session.reset()
    return np.stack([decode(session, token, pos).reshape(-1) for pos, token in enumerate(tokens)])


def teacher_forced(model: LoadedModel, tokens: Sequence[int], sheet: Sheet) -> None:
    """Logits of the device and of the oracle on the same tokens."""
    oracle = load_model(
        model.checkpoint, target="oracle", capacity=CAPACITY, buckets=BUCKETS
    ).session
    want, got = run_tokens(oracle, tokens), run_tokens(model.session, tokens)
    worst = float(np.max(np.abs(want - got)))
    sheet.note("teacher-forced tokens", len(tokens))
    sheet.note("largest logit difference", worst, worst <= WITHIN)
    same = bool((want.argmax(1) == got.argmax(1)).all())
    sheet.note("greedy tokens equal the oracle's", same, same)


def speed(model: LoadedModel, session: Session, name: str, sheet: Sheet) -> None:
    """Tokens a second of single-token steps with their logits on the host, median of 5 runs."""
    session.reset()
    rates: list[float] = []
    count = CAPACITY - 1
    for _ in range(5):
        start = time.perf_counter()
        for pos in range(count):
            decode(session, 1000 + pos, pos)
        rates.append(count / (time.perf_counter() - start))
    sheet.note(f"tokens/s, {name}", round(statistics.median(rates), 1))
    sheet.note(f"tokens/s, {name}, spread", [round(min(rates), 1), round(max(rates), 1)])


def replay_checks(model: LoadedModel, sheet: Sheet) -> Session | None:
    """Replay against direct launches, and what it has to keep. Returns a captured session."""
    program = model.program
    direct, one, other = (model.session.fork() for _ in range(3))
    try:
        for session in (one, other):
            session.capture("decode")
    except CaptureUnavailable as e:
        sheet.note("capture", e.message)
        return None
    rng = np.random.default_rng(3)
    tokens = [int(t) for t in rng.integers(0, 49152, CAPACITY)]
    want = run_tokens(direct, tokens)
    got = run_tokens(one, tokens)
    same = got.tobytes() == want.tobytes()
    sheet.note(f"replay is bit-equal, positions 0 to {CAPACITY - 1}", same, same)
    interleaved(one, other, direct, want, tokens, sheet)
    two_programs(program, one, want, tokens, sheet)
    if isinstance(program.device, CudaDevice):
        flat_memory(program.device, one, sheet)
    return one


def interleaved(
    one: Session, other: Session, direct: Session, want: np.ndarray, tokens: list[int], sheet: Sheet
) -> None:
    back = list(reversed(tokens))
    want_back = run_tokens(direct, back)
    one.reset()
    other.reset()
    same = True
    for pos in range(len(tokens)):
        a, b = decode(one, tokens[pos], pos), decode(other, back[pos], pos)
        same = (
            same and a.tobytes() == want[pos].tobytes() and b.tobytes() == want_back[pos].tobytes()
        )
    sheet.note("two sessions interleaved keep apart", same, same)


def two_programs(
    program: Program, session: Session, want: np.ndarray, tokens: list[int], sheet: Sheet
) -> None:
    """Another program on the same device, captured too, run between the steps."""

    def step(kv, x, pos):
        kv = ops.dynamic_update_slice(kv, x, pos, axis=0)
        return ops.softmax(kv.sum(axis=0)), kv

    specs = (
        poot.state((64, 32)),
        poot.slot((1, 32), "f32"),
        poot.slot((), "i32", kind="pos", range=(0, 64)),
    )
    graph = poot.trace(step, specs)
    small = poot.compile(graph, program.target)
    ours, theirs = small.bind(), poot.compile(graph, "oracle").bind()
    ours.capture()
    session.reset()
    same = True
    for pos in range(32):
        x = np.random.default_rng(pos).standard_normal((1, 32)).astype(np.float32)
        a = decode(session, tokens[pos], pos)
        b, c = (np.asarray(s.step(x=x, pos=pos)) for s in (ours, theirs))
        same = same and a.tobytes() == want[pos].tobytes() and np.allclose(b, c, atol=1e-5)
    sheet.note("two programs on one context keep apart", same, same)


def flat_memory(device: CudaDevice, session: Session, sheet: Sheet) -> None:
    session.reset()
    for n in range(20):
        decode(session, n, n)
    before = device.driver.memory()[0]
    for n in range(1000):
        decode(session, n, n % CAPACITY)
    grown = before - device.driver.memory()[0]
    sheet.note("bytes grown over 1000 replays", grown, grown <= 0)


def median_us(body: Callable[[int], object], count: int, after: Callable[[], None]) -> float:
    """Median microseconds of the body, with `after` outside of each time."""
    times: list[float] = []
    for n in range(count):
        start = time.perf_counter()
        body(n)
        times.append(time.perf_counter() - start)
        after()
    return round(1e6 * statistics.median(times), 2)


def overhead(device: CudaDevice, session: Session, sheet: Sheet) -> None:
    """Host time of a replayed step, apart from the device's own: whole, and in parts."""
    decode(session, 1, 1)
    runner, wait = session.runner, device.synchronize
    given = [
        {"tokens": np.array([n], np.int32), "pos": np.int32(n % CAPACITY)} for n in range(2000)
    ]

    def back_to_back(count: int) -> float:
        wait()
        start = time.perf_counter()
        for _ in range(count):
            runner.run("decode")
        wait()
        return 1e6 * (time.perf_counter() - start) / count

    def step(n: int) -> None:
        session.step("decode", device_outputs=True, **given[n])

    own = statistics.median(back_to_back(200) for _ in range(5))
    sheet.note("device us a replayed step", round(own, 1))
    sheet.note("host us to enqueue a step (slots, graph)", median_us(step, 400, wait))
    for _ in range(4):
        step(0)
    sheet.note("host us to enqueue a step behind others", median_us(step, 60, lambda: None))
    wait()
    parts(device, session, sheet)

    def whole(n: int) -> None:
        decode(session, n, n % CAPACITY)

    wall = median_us(whole, 300, lambda: None)
    sheet.note("wall us of session.step, logits on the host", wall)
    sheet.note("wall less device us", round(wall - own, 1))


def parts(device: CudaDevice, session: Session, sheet: Sheet) -> None:
    """What the driver's own calls take of an enqueued step, one kind at a time."""
    runner, driver, wait = session.runner, device.driver, device.synchronize
    buffer = device.allocate(4096, "a probe")
    word = np.zeros(512, np.uint8)
    empty = {
        "the context made current and back": lambda n: (
            driver.held().__enter__() or driver.held().__exit__()
        ),
        "a copy of 512 bytes": lambda n: device.copy_in(buffer, 0, word),
        "the graph": lambda n: runner.run("decode"),
    }
    for name, body in empty.items():
        sheet.note(f"host us, {name}", median_us(body, 300, wait))
    with device.together():
        sheet.note("host us, the graph in a held context", median_us(empty["the graph"], 300, wait))
    device.free(buffer)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--target", default="cuda:0")
    parser.add_argument("--tokens", type=int, default=24)
    parser.add_argument("--model", type=Path, default=None)
    parser.add_argument("--out", type=Path, default=None)
    options = parser.parse_args(argv)
    sheet = Sheet()
    start = time.perf_counter()
    checkpoint = read_checkpoint(options.model or smollm2_path())
    model = load_model(checkpoint, target=options.target, capacity=CAPACITY, buckets=BUCKETS)
    sheet.note("device", model.program.device.description if model.program.device else "none")
    sheet.note("seconds to load", round(time.perf_counter() - start, 2))
    sheet.note("seconds of compile", {k: round(v, 2) for k, v in model.program.seconds.items()})
    ids = checkpoint.prompt_ids(PROMPT)
    start = time.perf_counter()
    made = list(model.generate(ids, max_tokens=24, sampling=Sampling()))
    sheet.note("text", checkpoint.tokenizer.decode(made))
    teacher_forced(model, (ids + made)[: options.tokens], sheet)
    speed(model, model.session, "direct launches", sheet)
    captured = replay_checks(model, sheet)
    if captured is not None:
        speed(model, captured, "replay", sheet)
        if isinstance(model.program.device, CudaDevice):
            overhead(model.program.device, captured, sheet)
    profile = model.session.profile(
        "decode", tokens=np.array([5], np.int32), pos=np.int32(CAPACITY - 1)
    )
    sheet.note("sum of launch times of a decode step, us", round(profile.us, 1))
    print(profile, flush=True)
    if options.out is not None:
        save(options.out, sheet.rows)
    for name in sheet.failed:
        print(f"FAILED: {name}")
    return 1 if sheet.failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
