"""Runs the parts of a step plan on a session: arrays in, one token a row out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from collections.abc import Sequence as InOrder
from dataclasses import dataclass
from typing import Protocol, cast

import numpy as np
from numpy.typing import NDArray

from poot.errors import ValidationError
from poot.ir.dtypes import DTYPES
from poot.ir.graph import Input
from poot.llm.blocks import BLOCK_SIZE
from poot.llm.layout import COPY, Layout, decode_entry, prefill_entry
from poot.llm.request import TokenLogprob
from poot.llm.sampling import Sampling, sample
from poot.llm.scheduler import Part, Sequence
from poot.slots import ForwardSlotMap

POOLS = "kv."  # the names of the pools' States begin so

Logits = NDArray[np.float32]


class Bound(Protocol):
    """What is used of `poot.session.Session`."""

    @property
    def state_inputs(self) -> dict[str, Input]: ...

    @property
    def state(self) -> Writable: ...

    @property
    def binds(self) -> int: ...

    def rebind(self, weights: Mapping[str, object]) -> None: ...

    def step(
        self, entry: str = "main", /, *, device_outputs: bool | None = None, **slots: object
    ) -> object: ...


class Writable(Protocol):
    """`session.state`, written."""

    def __setitem__(self, name: str, value: object, /) -> None: ...


class Kept(Protocol):
    """An output that stays on the device until it is read."""

    def numpy(self) -> np.ndarray: ...


@dataclass(frozen=True, slots=True)
class Want:
    """How a row's next token is chosen: `seen` are the tokens of its text so far, of which the last
    `step` came after the prompt."""

    sampling: Sampling
    step: int
    seen: InOrder[int]
    logprobs: int | None


@dataclass(frozen=True, slots=True)
class Drawn:
    """A row's next token."""

    token: int
    logprob: TokenLogprob | None


Outcome = Drawn | ValidationError | None


class Stepper:
    """One session of a program of a layout, for a vocabulary of `vocab` tokens."""

    def __init__(self, session: Bound, layout: Layout, vocab: int) -> None:
        self.layout = layout
        self._session = session
        self._vocab = vocab
        self._words = -(-vocab // 32)

    def copy(self, source: int, target: int) -> None:
        """Copies a block of every pool."""
        at = np.arange(BLOCK_SIZE, dtype=np.int32)
        write = ForwardSlotMap(target * BLOCK_SIZE + at, self.layout.slots)
        self._session.step(COPY, source=source * BLOCK_SIZE + at, target=write)

    def clear(self) -> None:
        """Zeroes every pool, which makes them known after a step that stopped part-way."""
        for name, i in self._session.state_inputs.items():
            if name.startswith(POOLS):
                held = DTYPES[i.var.type.dtype].numpy
                self._session.state[name] = np.zeros(i.var.type.shape, held)

    def run(self, part: Part, want: Callable[[Sequence], Want]) -> list[Outcome]:
        """Computes a part. For each row that has all its tokens computed by then: the next one, or
        the ValidationError of its logits; else None. Raises what a step raises."""
        ends = [count == s.remaining for s, count in part.rows]
        wants = [want(s) if end else None for (s, _), end in zip(part.rows, ends, strict=True)]
        slots = self._slots(part)
        entry = prefill_entry(part.bucket, part.tokens)
        if part.tokens == 1:
            is_sampled = self.layout.sampled and any(w and _is_devices(w) for w in wants)
            entry = decode_entry(part.bucket, sampled=is_sampled)
            if is_sampled:
                slots |= self._choices(part.bucket, wants)
        out = self._session.step(entry, device_outputs=True, **slots)
        kept = cast("Mapping[str, Kept]", out)  # what the model's step function returns
        is_picked = entry.startswith("sample")
        return _Outputs(kept["ids"], kept["top"], kept["logits"], is_picked).outcomes(wants)

    def _slots(self, part: Part) -> dict[str, object]:
        rows, tokens = part.bucket, part.tokens
        ids, pos = np.zeros((rows, tokens), np.int32), np.zeros(rows, np.int32)
        read = np.zeros((rows, self.layout.capacity), np.int32)
        write = np.full((rows, tokens), -1, np.int32)
        last, adapter = np.zeros(rows, np.int32), np.zeros(rows, np.int32)
        for i, (sequence, count) in enumerate(part.rows):
            start, table = sequence.computed, sequence.held()
            stop = start + count
            ids[i, :count] = sequence.tokens[start:stop]
            pos[i], last[i], adapter[i] = start, count - 1, sequence.adapter
            read[i, :stop] = table.slots(0, stop)
            write[i, :count] = table.writable(start, stop)
        made: dict[str, object] = {
            "tokens": ids, "pos": pos, "read": read,
            "write": ForwardSlotMap(write.reshape(-1), self.layout.slots),
        }  # fmt: skip
        if tokens > 1:
            made["last"] = last
        if self.layout.adapters:
            made["adapter"] = adapter
        return made

    def _choices(self, rows: int, wants: list[Want | None]) -> dict[str, object]:
        """The slots of `poot.llm.pick.Choice`; a row that wants nothing is greedy."""
        real = {name: np.zeros(rows, np.float32) for name in ("temperature", "top_p", "min_p")}
        penalty, seed = np.ones(rows, np.float32), np.zeros(rows, np.uint32)
        top_k, step = np.zeros(rows, np.int32), np.zeros(rows, np.int32)
        seen = np.zeros((rows, self._words), np.uint32)
        for i, want in enumerate(wants):
            if want is None:
                continue
            how = want.sampling
            real["temperature"][i] = how.temperature
            real["top_p"][i], real["min_p"][i] = how.top_p, how.min_p
            penalty[i], seed[i], step[i] = how.penalty, how.seed, want.step
            top_k[i] = how.top_k if how.top_k < self._vocab else 0
            if how.penalty != 1:
                seen[i] = seen_bits(want.seen, self._words)
        given = {**real, "penalty": penalty, "seed": seed, "step": step, "top_k": top_k}
        return {f"how.{name}": array for name, array in {**given, "seen": seen}.items()}


def _needs_choice(want: Want) -> bool:
    how = want.sampling
    return how.temperature > 0 or how.penalty != 1 or how.counts


def _is_devices(want: Want) -> bool:
    """Whether the device's choice is worth making. It doesn't count tokens: the host does."""
    return _needs_choice(want) and not want.sampling.counts


def seen_bits(tokens: Iterable[int], words: int) -> NDArray[np.uint32]:
    """Bit t % 32 of word t // 32 is set for each token t."""
    at = np.array(sorted(set(tokens)), np.int64)
    made = np.zeros(words, np.uint32)
    np.bitwise_or.at(made, at // 32, np.uint32(1) << (at % 32).astype(np.uint32))
    return made


@dataclass(frozen=True, slots=True)
class _Outputs:
    """A step's outputs on the device. `is_picked`: `ids` follow the rows' sampling."""

    ids: Kept
    top: Kept
    logits: Kept
    is_picked: bool

    def outcomes(self, wants: list[Want | None]) -> list[Outcome]:
        if not any(wants):
            return [None] * len(wants)
        ids, top = self.ids.numpy(), self.top.numpy()
        by_host = [w is not None and self._is_hosts(w, int(ids[i]), float(top[i]))
                   for i, w in enumerate(wants)]  # fmt: skip
        logits = self.logits.numpy() if any(by_host) else None
        made: list[Outcome] = []
        for i, want in enumerate(wants):
            if want is None or logits is None or not by_host[i]:
                made.append(None if want is None else Drawn(int(ids[i]), None))
            else:
                made.append(_by_host(logits[i], want, self._picked(want, int(ids[i]))))
        return made

    def _picked(self, want: Want, token: int) -> int | None:
        """The device's choice, None where it made none."""
        is_made = not _needs_choice(want) or (self.is_picked and _is_devices(want))
        return token if token >= 0 and is_made else None

    def _is_hosts(self, want: Want, token: int, top: float) -> bool:
        is_open = self._picked(want, token) is None
        return is_open or want.logprobs is not None or not np.isfinite(top)


def _by_host(logits: Logits, want: Want, token: int | None) -> Outcome:
    """A row's token where the host has to look at its logits."""
    try:
        checked = sample(logits, want.sampling, want.step, want.seen)
        chosen = checked if token is None else token
        count = want.logprobs
        return Drawn(chosen, None if count is None else logprobs(logits, chosen, count))
    except ValidationError as e:
        return e
    except Exception as e:  # this row's alone
        return ValidationError(f"step {want.step}: no token could be chosen: {e}")


def logprobs(logits: Logits, token: int, count: int) -> TokenLogprob:
    """The log-probability of `token` and of the `count` likeliest, equal ones by rising id."""
    wide = logits.astype(np.float64)
    wide = wide - wide.max()
    values = wide - np.log(np.exp(wide).sum())
    best = np.argsort(-values, kind="stable")[:count]
    return TokenLogprob(
        token, float(values[token]), tuple((int(t), float(values[t])) for t in best)
    )
