"""Replay protection: a message that came once has no effect again, however old the recording.

There are three memories. The subscriber's `ReplayWindow` (in `link`) covers the numbers of a publisher's stream and is
always on: an honest sender never notices it. `HeartbeatHistory` covers the heartbeats of each neighbour, and
`TwoGenerationIds` covers the notifications that a node has forwarded; both belong to the switch `replay`.

Heartbeats need no window, because an overtaken heartbeat is refused anyway: the numbers of one run of a neighbour are a
single interval, and a recording lies in a remembered interval.

Forwarders cannot read the numbers of notifications, and subscribers must behave like forwarders or be distinguished
from them. So all nodes remember ids, and for long enough: only authentic notifications fill the memory, and if tokens
change with the epoch it has to last for one epoch.
"""

from __future__ import annotations

from typing import Final

from veilcast.core.bounded import BoundedMap
from veilcast.machine import Address
from veilcast.mesh.config import MeshConfig
from veilcast.mesh.heartbeat import NUMBERS


class SeenIds:
    """The last `memory` ids of notifications. The oldest are evicted first."""

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


class TwoGenerationIds(SeenIds):
    """Remembers at least the last `memory` ids and at most twice as many. Cheaper than evicting one at a time."""

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
    """The memory of notifications for this configuration."""
    return TwoGenerationIds(config.defences.seen_each) if config.defences.replay else SeenIds(config.seen_max)


class HeartbeatHistory:
    """The heartbeats of each neighbour, also of former ones. Bounded: the last heard, four times `neighbours_max`."""

    def __init__(self, config: MeshConfig) -> None:
        self._on = config.defences.replay
        self._lives: BoundedMap[Address, CounterHistory] = BoundedMap(4 * config.neighbours_max)

    def __len__(self) -> int:
        return len(self._lives)

    def take(self, name: Address, number: int) -> bool:
        """False if this heartbeat, or a later one of the same run, was heard before."""
        if not self._on:
            return True
        return self._lives.touch(name, CounterHistory).take(number)


class CounterHistory:
    """The numbers that a counter has had: one interval for each run of its owner."""

    __slots__ = ("_stretches",)

    def __init__(self) -> None:
        self._stretches: list[tuple[int, int]] = []

    def __len__(self) -> int:
        return len(self._stretches)

    def take(self, number: int) -> bool:
        """False if the number lies in a known interval. A number just after the last interval extends it."""
        for first, last in self._stretches:
            if (number - first) % NUMBERS <= (last - first) % NUMBERS:
                return False
        if self._stretches and (number - self._stretches[-1][1]) % NUMBERS < STRIDE:
            self._stretches[-1] = (self._stretches[-1][0], number)
        else:
            self._stretches = [*self._stretches[-LIVES_MAX + 1 :], (number, number)]
        return True


STRIDE: Final = 1024
"""Heartbeats that may be missed, with the next one still in the same run."""
LIVES_MAX: Final = 64
