"""A session over paged pools in plain Python: a slot holds a token, and the logits of a row are a
function of the tokens that its read map names, in order. So a wrong slot shows in the next token.

It checks what every device would be harmed by: block 0 is never written, nothing is written to a
slot twice in a step, and what is read was written by the same sequence of tokens.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import blake2b

import numpy as np

from poot.errors import LaunchError
from poot.ir.graph import Input, State, TensorType, Var
from poot.llm.blocks import BLOCK_SIZE
from poot.llm.layout import COPY, Layout
from poot.slots import ForwardSlotMap

VOCAB = 64
LAYOUT = Layout(
    blocks=13, capacity=96, decode_rows=(1, 2, 4, 8), prefill=((1, 4), (1, 16), (3, 16)), adapters=3
)


def logits_after(tokens: list[int], adapter: float = 0.0) -> np.ndarray:
    """f32 [VOCAB]: other numbers for each text and adapter."""
    text = f"{tokens} {adapter}".encode()
    seed = int.from_bytes(blake2b(text, digest_size=8).digest(), "little")
    return np.random.default_rng(seed).standard_normal(VOCAB).astype(np.float32) * 3


def continued(prompt: list[int], count: int, adapter: float = 0.0) -> list[int]:
    """The greedy text after a prompt."""
    tokens = list(prompt)
    for _ in range(count):
        tokens.append(int(np.argmax(logits_after(tokens, adapter))))
    return tokens[len(prompt) :]


@dataclass(frozen=True, slots=True)
class Held:
    """An output on the device."""

    array: np.ndarray

    def numpy(self) -> np.ndarray:
        return self.array


@dataclass(slots=True)
class Faults:
    """The numbers of the steps that fail (a LaunchError leaves half of the step's rows spoilt), how
    many writes of a pool fail after that, and prompts whose logits hold a NaN."""

    at: set[int] = field(default_factory=set)
    clears: int = 0
    error: type[Exception] = LaunchError
    bad_logits_of: tuple[int, ...] = ()


class FakeStates(dict[str, np.ndarray]):
    """`session.state`: pools are cleared by it."""

    def __init__(self, faults: Faults) -> None:
        super().__init__()
        self.faults = faults

    def __setitem__(self, name: str, value: object) -> None:
        if name.startswith("kv.") and self.faults.clears:
            self.faults.clears -= 1
            raise LaunchError("the copy fails, as asked")
        super().__setitem__(name, np.array(value))


class FakeSession:
    """What `poot.llm.stepper.Bound` asks for, over one pool of tokens. An adapter's State holds one
    number, which its logits depend on."""

    def __init__(self, layout: Layout = LAYOUT) -> None:
        self.layout = layout
        self.faults = Faults()
        self.steps: list[str] = []
        self.count = 0
        self.binds = 1
        shapes = {"kv.0.k.rows": (layout.slots, 1, 1)}
        if layout.adapters:
            shapes |= {"lora.0.q.a": (layout.adapters + 1, layout.rank, 2)}
            shapes |= {"lora.0.q.b": (layout.adapters + 1, layout.rank, 3)}
        self.state_inputs = {
            name: Input(Var(i, TensorType("f32", shape)), name, State())
            for i, (name, shape) in enumerate(shapes.items())
        }
        self.state = FakeStates(self.faults)
        for name, shape in shapes.items():
            self.state[name] = np.zeros(shape, np.float32)

    @property
    def pool(self) -> np.ndarray:
        """Token + 1 of each slot, 0 where it is empty."""
        return self.state["kv.0.k.rows"].reshape(-1)

    def rebind(self, weights: Mapping[str, object]) -> None:
        self.binds += 1

    def step(
        self, entry: str = "main", /, *, device_outputs: bool | None = None, **slots: object
    ) -> object:
        number, self.count = self.count, self.count + 1
        self.steps.append(entry)
        write = slots["target" if entry == COPY else "write"]
        write = write if isinstance(write, ForwardSlotMap) else slots["write"]
        assert isinstance(write, ForwardSlotMap)
        assert write.pool_slots == self.layout.slots
        rows = write.rows
        assert not ((rows >= 0) & (rows < BLOCK_SIZE)).any(), "block 0 is reserved"
        values = self._values(entry, slots)
        if number in self.faults.at:
            if issubclass(self.faults.error, LaunchError):
                half = rows[: rows.size // 2]
                self.pool[half[half >= 0]] = 999
            raise self.faults.error("the step fails, as asked")
        self.pool[rows[rows >= 0]] = values[rows >= 0]
        return None if entry == COPY else self._outputs(slots)

    def _values(self, entry: str, slots: dict[str, object]) -> np.ndarray:
        if entry == COPY:
            return self.pool[np.asarray(slots["source"])].copy()
        tokens = np.asarray(slots["tokens"])
        name = "prefill_{}x{}" if tokens.shape[1] > 1 else "decode_{}"
        assert entry == name.format(*tokens.shape), (entry, tokens.shape)
        return tokens.reshape(-1) + 1.0

    def _outputs(self, slots: dict[str, object]) -> dict[str, Held]:
        pos, read = np.asarray(slots["pos"]), np.asarray(slots["read"])
        last = np.asarray(slots.get("last", np.zeros(len(pos), np.int32)))
        places = np.asarray(slots.get("adapter", np.zeros(len(pos), np.int32)))
        logits = np.zeros((len(pos), VOCAB), np.float32)
        for i, (start, row, end) in enumerate(zip(pos, read, last, strict=True)):
            text = self.pool[row[: start + end + 1]]
            assert not (row[start + end + 1 :]).any(), "past its length a row names slot 0"
            if row[0] == 0:
                continue  # a padding row
            assert (text > 0).all(), "a slot that nobody wrote is read"
            adapter = float(self.state["lora.0.q.b"][places[i], 0, 0]) if places[i] else 0.0
            tokens = [int(t) - 1 for t in text]
            logits[i] = logits_after(tokens, adapter)
            if tuple(tokens[: len(self.faults.bad_logits_of)]) == self.faults.bad_logits_of != ():
                logits[i, 5] = np.nan
        assert (self.pool[:BLOCK_SIZE] == 0).all(), "block 0 stays zero"
        top = logits.max(axis=1)
        return {
            "ids": Held(logits.argmax(axis=1).astype(np.int32)),
            "top": Held(top),
            "logits": Held(logits),
        }


def random_prompts(seed: int, count: int, most: int) -> Iterator[tuple[int, ...]]:
    """Prompts of 1 to `most` tokens; about half begin with one of two common texts."""
    rng = np.random.default_rng(seed)
    common = [tuple(int(t) for t in rng.integers(0, VOCAB, most)) for _ in range(2)]
    for _ in range(count):
        size = int(rng.integers(1, most + 1))
        own = tuple(int(t) for t in rng.integers(0, VOCAB, size))
        kept = int(rng.integers(0, size + 1)) if rng.random() < 0.5 else 0
        yield common[int(rng.integers(0, 2))][:kept] + own[kept:]
