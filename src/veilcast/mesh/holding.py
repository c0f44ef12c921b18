"""What a root holds back: notes that wait for a random time, or for their mesh to form.

Readers who know all who are there compare that with when notes come; a note that comes some epochs late compares with
nothing. Whosever moment it is, the oldest of its token goes: the moments keep their law, and the notes their order.
"""

from __future__ import annotations

from heapq import heappop, heappush
from random import Random

from veilcast.wire.messages import Notify


class Holding:
    """Bounded: at most `room` notes are held, each for up to `hold_us`."""

    def __init__(self, rng: Random, *, hold_us: int, room: int) -> None:
        self._rng, self._hold_us, self._room = rng, hold_us, room
        self._held: dict[bytes, Notify] = {}
        self._moments: list[tuple[int, bytes]] = []

    def takes(self, name: bytes) -> bool:
        """Whether there is room for what has this name, and it is not here already."""
        return name not in self._held and len(self._held) < self._room

    def put(self, name: bytes, note: Notify, stands_us: int, now: int) -> bool:
        """Keep a note for its time, and until its mesh stands; False if that is now, and none of its token is before
        it."""
        due_us = max(now + self._rng.randrange(self._hold_us + 1), stands_us)
        if due_us <= now and all(held.token != note.token for held in self._held.values()):
            return False
        self._held[name] = note
        heappush(self._moments, (due_us, note.token))
        return True

    def due(self, now: int) -> tuple[bytes, Notify] | None:
        """One whose time has come, and its name: it is not held any more."""
        if not self._moments or self._moments[0][0] > now:
            return None
        _, token = heappop(self._moments)
        name = next(name for name, held in self._held.items() if held.token == token)
        return name, self._held.pop(name)

    def __len__(self) -> int:
        return len(self._held)
