"""A recorded entry point whose changed slots go to the device with the launch of the recording."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from poot.backends.base import TakesSlots
from poot.device_array import Stored
from poot.staged_slots import StagedSlots


class Carried:
    """One entry point's recording. `places` is where each slot lies whose bytes on the device are
    the host's; `stored` is where its outputs lie."""

    def __init__(
        self,
        made: TakesSlots,
        staged: StagedSlots,
        room: int,
        places: Mapping[str, int],
        stored: Sequence[Stored],
    ) -> None:
        self._made, self._staged, self._room = made, staged, room
        self.places = dict(places)
        self.stored = tuple(stored)

    def takes_all(self) -> bool:
        """Whether all that changed goes along. What doesn't has to be copied before."""
        return self._staged.span(self._room) is not None

    def write_whole(self, first: int, raw: bytes) -> None:
        """A slot's new bytes, for the next run."""
        self._staged.write_whole(first, raw)

    def make_room(self) -> None:
        """Returns when a run can bring bytes. Raises a BackendError where the device doesn't go
        on."""
        self._made.make_room()

    def run(self) -> None:
        """Enqueues the recording with what changed since the last run, where `takes_all`."""
        staged = self._staged
        span = staged.span(self._room)
        assert span is not None, "what goes not along was copied"
        first, last = span
        self._made.run_with(first, staged.view(first, last))
        staged.done()
