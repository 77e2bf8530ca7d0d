"""Slots on their way into a replayed graph: a page-locked ring that the device reads by itself.

The graph's first node is one group of lanes (`take_text`). It reads how many entries were taken so
far from a word of device memory, copies the next one into the slots' buffer, and writes the new
count there and, for the host, at the ring's start. So a replay costs the host the bytes written
here and the launch of the graph, and no call for the copy.

    ring    [0, 4) the count taken; from _START on, entries of `stride` bytes
    entry   first byte, words, two words of nothing; then the words themselves

The host writes an entry only where the count says that the one before it in that place was taken.
Launches of a graph are in the stream's order, so entry n is the n-th launch's.
"""

from __future__ import annotations

import struct
import time

from poot.backends.cuda.provider import Call, Driver, Handle
from poot.codegen.ptx.text import VERSION
from poot.errors import LaunchError

NAME = "poot_take_slots"
# Runs of bytes up to this size go through the ring; larger ones are copied by a call.
MOST_NBYTES = 4096
_LANES = 256
_START = 64  # the count has a cache line of its own
_HEADER = struct.Struct("<4I")
_RING_NBYTES = 1 << 18
_FEWEST, _MOST = 16, 256
_WORDS = 1 << 32
# How long the host looks at the count by itself before it asks the driver what is wrong.
_PATIENCE_S = 2.0
_NAP_S = 2e-5


def take_text(arch: str) -> str:
    """The node's PTX. A lane asks for its first word before the header has come: both cross the bus
    at once. Volatile, because the host writes there between launches (PTX ISA, ld.volatile)."""
    return f""".version {VERSION}
.target {arch}
.address_size 64

.visible .entry {NAME}(
    .param .u64 param_ring,
    .param .u64 param_count,
    .param .u64 param_slots,
    .param .b32 param_mask,
    .param .b32 param_stride
)
.maxntid {_LANES}, 1, 1
{{
    .reg .pred $p, $q;
    .reg .b32 $lane, $n, $at, $mask, $stride, $room, $first, $words, $word, $i;
    .reg .b64 $ring, $count, $slots, $entry, $from, $to;
    ld.param.u64 $ring, [param_ring];
    ld.param.u64 $count, [param_count];
    ld.param.u64 $slots, [param_slots];
    ld.param.b32 $mask, [param_mask];
    ld.param.b32 $stride, [param_stride];
    mov.u32 $lane, %tid.x;
    mov.b32 $i, $lane;
    ld.volatile.global.b32 $n, [$count];
    and.b32 $at, $n, $mask;
    add.u64 $entry, $ring, {_START};
    mad.wide.u32 $entry, $at, $stride, $entry;
    mad.wide.u32 $from, $lane, 4, $entry;
    sub.u32 $room, $stride, {_HEADER.size};
    shr.u32 $room, $room, 2;
    ld.volatile.global.v2.b32 {{$first, $words}}, [$entry];
    setp.lt.u32 $p, $i, $room;
    @$p ld.volatile.global.b32 $word, [$from+{_HEADER.size}];
    mad.wide.u32 $to, $first, 1, $slots;
    mad.wide.u32 $to, $lane, 4, $to;
    setp.lt.u32 $q, $i, $words;
    @!$q bra TAKEN;
NEXT:
    st.global.b32 [$to], $word;
    add.u32 $i, $i, {_LANES};
    add.u64 $from, $from, {4 * _LANES};
    add.u64 $to, $to, {4 * _LANES};
    setp.lt.u32 $q, $i, $words;
    @!$q bra TAKEN;
    ld.volatile.global.b32 $word, [$from+{_HEADER.size}];
    bra NEXT;
TAKEN:
    bar.sync 0;
    setp.ne.u32 $p, $lane, 0;
    @$p bra END;
    add.u32 $n, $n, 1;
    st.global.b32 [$count], $n;
    fence.acq_rel.sys;
    st.volatile.global.b32 [$ring], $n;
END:
    ret;
}}
"""


class SlotRing:
    """The host's side. Used by one thread at a time."""

    def __init__(self, driver: Driver, nbytes: int, count_at: int) -> None:
        """For a buffer of so many bytes; `count_at` is a zeroed word of device memory."""
        self.room = min(-(-nbytes // 4) * 4, MOST_NBYTES)
        self._driver = driver
        # A lane reads an entry's header as a vector, whose address is a multiple of its size.
        self._stride = _HEADER.size + -(-self.room // _HEADER.size) * _HEADER.size
        fit = max(_FEWEST, min(_MOST, _RING_NBYTES // self._stride))
        self._count = 1 << fit.bit_length() - 1
        self._mask = self._count - 1
        self._count_at = count_at
        self._pinned = driver.pinned(_START + self._count * self._stride)
        self._bytes = self._pinned.array.data
        self._taken = self._bytes[:4].cast("I")
        self._pinned.array.fill(0)
        self._given = 0
        self._in_doubt = False

    def call(self, function: Handle, slots_at: int) -> Call:
        """The node's launch, into the buffer at that address."""
        words = (self._pinned.address, self._count_at, slots_at, self._mask, self._stride)
        raw = struct.pack("<3Q2I", *words)
        return Call(NAME, function, (1, 1, 1), _LANES, 0, raw, (0, 8, 16, 24, 28))

    def settle(self) -> None:
        """After a launch of which nobody knows whether the driver took it, since a signal or an
        error came between: waits for the stream, whose count of entries then holds."""
        if self._in_doubt:
            self._driver.synchronize()
            self._given = self._taken[0]
            self._in_doubt = False

    def is_full(self) -> bool:
        return (self._given - self._taken[0]) % _WORDS >= self._count

    def wait(self) -> None:
        """Returns when there is room for an entry. Raises what the driver says where the device
        doesn't go on, and LaunchError where it goes on and leaves entries."""
        deadline = time.monotonic() + _PATIENCE_S
        while self.is_full():
            if time.monotonic() < deadline:
                time.sleep(_NAP_S)
                continue
            self._driver.synchronize()
            if self.is_full():
                raise LaunchError(
                    f"{NAME} took {self._taken[0]} of {self._given % _WORDS} entries of slots, and "
                    "the stream is done; bind and capture again"
                )

    def put(self, first: int, raw: memoryview | bytes) -> None:
        """Writes the next launch's entry: `raw` for the bytes from `first` on, whole words."""
        at = _START + (self._given & self._mask) * self._stride
        nbytes = len(raw)
        assert nbytes <= self.room, "as many words as fit"
        assert not (first | nbytes) & 3, "whole words"
        _HEADER.pack_into(self._bytes, at, first, nbytes >> 2, 0, 0)
        if nbytes:
            at += _HEADER.size
            self._bytes[at : at + nbytes] = raw

    def launching(self) -> None:
        """The launch that takes the entry is asked for next."""
        self._in_doubt = True

    def launched(self) -> None:
        """The entry is the device's."""
        self._given += 1
        self._in_doubt = False

    def drain(self) -> None:
        """Returns when nothing reads the ring any more."""
        if self._in_doubt or self._given % _WORDS != self._taken[0]:
            self._driver.synchronize()
