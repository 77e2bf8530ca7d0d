"""A step of a recorded entry point whose slots are plain, as straight code.

It does what `Session._begin` does, without what can't be needed: nothing is fed from the device,
every slot was given before, and all that changed goes along with the recording.
"""

from __future__ import annotations

from collections.abc import Mapping

from poot.carried import Carried
from poot.device_array import Stored
from poot.step_slots import HeldSlots, Key, SlotCheck


class QuickStep:
    """One entry point's. `stored` is where its outputs lie."""

    def __init__(
        self, entry: str, checks: Mapping[str, SlotCheck], held: HeldSlots, carried: Carried
    ) -> None:
        self._rows = {
            name: (checks[name], (entry, name), at)
            for name, at in carried.places.items()
            if name in checks
        }
        self._keys: tuple[Key, ...] = tuple((entry, name) for name in checks)
        self._held = held
        self._carried = carried
        self.stored: tuple[Stored, ...] = carried.stored

    def send(self, slots: Mapping[str, object]) -> bool:
        """Checks what a step is given, and stages what of it changed for `run`. False where the
        step isn't such a one, and has to go the long way: that finds as bound what was staged here.
        Raises a BackendError where the device doesn't go on: what was given is kept, for the next
        step."""
        held = self._held
        changed: list[tuple[Key, int, bytes]] = []
        for name, value in slots.items():
            row = self._rows.get(name)
            if row is None:
                return False
            check, key, at = row
            given, known = check.plain(value), held.known(key)
            if given is None or known is None:
                return False
            raw = given.tobytes()
            if raw != known:
                changed.append((key, at, raw))
        if len(slots) < len(self._keys) and not all(key in held for key in self._keys):
            return False
        for key, at, raw in changed:
            held.keep(key, raw)
            self._carried.write_whole(at, raw)
        if not self._carried.takes_all():
            return False
        self._carried.make_room()
        return True

    def run(self) -> None:
        """Enqueues the recording, after `send`."""
        self._carried.run()
