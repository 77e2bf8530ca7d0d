"""Whether tensors that were bound are still what they were.

torch counts writes that it sees (`_version`). One through `.data`, numpy or a pointer it doesn't
see, so the elements are looked at too: a sample of each tensor at every call, and all of their
bytes, at every call while they are few and else in turns.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

import numpy as np
import torch

from poot.errors import TraceError

LOG = logging.getLogger("poot")
# What is looked at: all bytes at each call; all where they are few, else in turns; none.
MODES = ("read", "watched", "versions")
FEW = 16 << 20  # bytes that are all looked at in each call
TURNS = 16  # calls in which all bytes are looked at, where they are many
_CHUNK = 1 << 20
_SAMPLE = 64  # words


def need_mode(mode: object) -> str:
    """A mode. Raises TraceError on another."""
    if mode not in MODES:
        raise TraceError(f"weights are {', '.join(MODES)}: got {mode!r}")
    return str(mode)


def memory_of(tensor: torch.Tensor) -> np.ndarray:
    """The bytes from a tensor's first element to its last, in its own memory on the host; none of a
    tensor that lies elsewhere."""
    if tensor.device.type != "cpu" or not tensor.numel():
        return np.empty(0, np.uint8)
    held = tensor.detach()
    raw = torch.empty(0, dtype=torch.uint8).set_(held.untyped_storage()).numpy()
    first = held.storage_offset() * held.itemsize
    pairs = zip(held.shape, held.stride(), strict=True)
    last = first + (sum((n - 1) * stride for n, stride in pairs) + 1) * held.itemsize
    return raw[first:last]


def digest(raw: np.ndarray) -> int:
    """Of bytes, 64 bits: those of Python's own hash of them (4 GB/s of one core)."""
    return hash(raw.tobytes())


class _Seen:
    """One tensor as it was."""

    def __init__(self, tensor: torch.Tensor, mode: str) -> None:
        self.tensor = tensor.detach()  # held, so that its address stays its own
        self.stamp = _stamp(tensor)
        is_counted = mode == "versions" and self.stamp[1] is not None
        raw = np.empty(0, np.uint8) if is_counted else memory_of(tensor)
        self.chunks = [raw[at : at + _CHUNK] for at in range(0, raw.size, _CHUNK)]
        self.digests = [digest(chunk) for chunk in self.chunks]
        words = raw[: raw.size // 8 * 8].view(np.uint64)
        self.points = words[:: max(1, words.size // _SAMPLE)] if words.size else raw
        self.sample = self.points.tobytes()


def _stamp(tensor: torch.Tensor) -> tuple[int, int | None, tuple[int, ...], tuple[int, ...]]:
    version = None if tensor.is_inference() else tensor._version
    return tensor.data_ptr(), version, tuple(tensor.shape), tuple(tensor.stride())


class Watch:
    """Tensors by name, as they were when they were bound. Used by one thread at a time."""

    def __init__(self, tensors: Mapping[str, torch.Tensor], mode: str = "watched") -> None:
        self.seen = {name: _Seen(tensor, mode) for name, tensor in tensors.items()}
        self.places = [(name, n) for name, s in self.seen.items() for n in range(len(s.chunks))]
        # A tensor of torch.inference_mode has no count of writes: all of it is looked at.
        self.always = [p for p in self.places if self.seen[p[0]].stamp[1] is None]
        nbytes = sum(self.seen[name].chunks[n].size for name, n in self.places)
        self.is_whole = mode == "read" or nbytes <= FEW
        self.next = 0

    def changed(self, tensors: Mapping[str, torch.Tensor]) -> str:
        """The name of a tensor that isn't what it was, or empty."""
        for name, tensor in tensors.items():
            if _stamp(tensor) != self.seen[name].stamp:
                return name
        for name, seen in self.seen.items():
            if seen.points.tobytes() != seen.sample:
                return name
        return self._differing()

    def _differing(self) -> str:
        if self.is_whole:
            return self._first(self.places)
        found = self._first(self.always)
        count = -(-len(self.places) // TURNS)
        turn = [self.places[(self.next + n) % len(self.places)] for n in range(count)]
        self.next = (self.next + count) % max(len(self.places), 1)
        if not found and (found := self._first(turn)):
            LOG.warning(
                "weight %s was written where torch doesn't see it, in up to %d calls before this "
                'one, which went by what it was; options={"weights": "read"} looks at all of the '
                "weights in each call",
                found, TURNS - 1,
            )  # fmt: skip
        return found

    def _first(self, places: list[tuple[str, int]]) -> str:
        for name, n in places:
            seen = self.seen[name]
            if digest(seen.chunks[n]) != seen.digests[n]:
                return name
        return ""
