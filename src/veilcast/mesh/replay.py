"""Replays: what came once does not come again, however old the recording.

Three memories, each of what is to be had only once. A reader's `Window` (of the link's room) is of the numbers in a
publisher's stream, and it is always there: whoever follows the protocol never notices it. `HeartbeatHistory` is of the
heartbeats
of each neighbour, and `TwoGenerationIds` of the notes that a node has passed on; both belong to the switch `replay`.

Heartbeats need no window, for one that was overtaken is refused anyway: the numbers of one life of a neighbour are a
single stretch, and a recording lies in a stretch that we remember.

Notes are passed on by those who cannot read their numbers, and readers must do as these do or be told from them. So all
remember ids, and for long enough: the memory turns over only with genuine notes, and where tokens change with the epoch
it has to last for one.


Duplicates: which notes were here before. The oldest are forgotten first."""

from __future__ import annotations

from typing import Final

from veilcast.machine import Address
from veilcast.mesh.config import MeshConfig
from veilcast.mesh.heartbeat import NUMBERS


class SeenIds:
    """Remembers the last `memory` ids."""

    def __init__(self, memory: int) -> None:
        self._memory = memory
        self._seen: dict[bytes, None] = {}

    def __contains__(self, name: bytes) -> bool:
        return name in self._seen

    def __len__(self) -> int:
        return len(self._seen)

    def add(self, name: bytes) -> None:
        if len(self._seen) >= self._memory:
            del self._seen[next(iter(self._seen))]
        self._seen[name] = None


class CounterHistory:
    """The numbers that a counter has had: one stretch for each time it began anew."""

    __slots__ = ("_stretches",)

    def __init__(self) -> None:
        self._stretches: list[tuple[int, int]] = []

    def __len__(self) -> int:
        return len(self._stretches)

    def take(self, number: int) -> bool:
        """False if it lies in a stretch that we know. A number just after the last goes on with it."""
        for first, last in self._stretches:
            if (number - first) % NUMBERS <= (last - first) % NUMBERS:
                return False
        if self._stretches and (number - self._stretches[-1][1]) % NUMBERS < STRIDE:
            self._stretches[-1] = (self._stretches[-1][0], number)
        else:
            self._stretches = [*self._stretches[-LIVES_MAX + 1 :], (number, number)]
        return True


class HeartbeatHistory:
    """The heartbeats of each neighbour, also of those that are gone: of the last, four times as many as we can have."""

    def __init__(self, config: MeshConfig) -> None:
        self._on, self._names_max = config.defences.replay, 4 * config.neighbours_max
        self._lives: dict[Address, CounterHistory] = {}

    def __len__(self) -> int:
        return len(self._lives)

    def take(self, name: Address, number: int) -> bool:
        """False if this heartbeat, or a later one of the same life, was heard before."""
        if not self._on:
            return True
        lives = self._lives.pop(name, None) or CounterHistory()
        self._lives[name] = lives
        if len(self._lives) > self._names_max:
            del self._lives[next(iter(self._lives))]
        return lives.take(number)


class TwoGenerationIds(SeenIds):
    """Remembers the last `memory` ids at least and twice as many at most; cheaper than to forget one at a time."""

    def __init__(self, memory: int) -> None:
        super().__init__(memory)
        self._older: dict[bytes, None] = {}

    def __contains__(self, name: bytes) -> bool:
        return name in self._seen or name in self._older

    def __len__(self) -> int:
        return len(self._seen) + len(self._older)

    def add(self, name: bytes) -> None:
        if len(self._seen) >= self._memory:
            self._older, self._seen = self._seen, {}
        self._seen[name] = None


def make_seen_ids(config: MeshConfig) -> SeenIds:
    """The memory of notes for a node of this configuration."""
    return TwoGenerationIds(config.defences.seen_each) if config.defences.replay else SeenIds(config.seen_max)


STRIDE: Final = 1024
"""How many heartbeats may have been missed, and the next still be of the same life."""
LIVES_MAX: Final = 64
