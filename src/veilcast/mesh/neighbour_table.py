"""The neighbour table: the neighbours, which of them are present, and acquaintances.

Neighbours are given at the start, and a `neighbourhood` may add and remove some. A neighbour is present from its first
heartbeat on. It has failed when it was silent for `silent_periods` periods, or when the driver reports it lost. When it
is heard again, it is back. Heartbeats are numbered consecutively. A number that does not follow the last means that
heartbeats were missed, with the messages in them, or that the neighbour has restarted with a number of its own. The
node then requests all state again.

Acquaintances are nodes that a policy has introduced; they are not neighbours. Heartbeats are exchanged with them, so
their failure is noticed in the same way, but advertisements are not. A failed acquaintance is forgotten.

Local health: before a node suspects others it checks itself. If its own timer came late by more than a period, or if it
has heard no neighbour at all, the node itself was stopped or cut off. Then the silence of every neighbour counts only
from the end of that time.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final, NamedTuple

from veilcast.errors import LocalError
from veilcast.machine import Address
from veilcast.mesh.heartbeat import NUMBERS


class NeighbourTable:
    """Bounded by the given neighbours; the caller that adds neighbours or acquaintances bounds them."""

    def __init__(self, neighbours: Sequence[Address], *, period_us: int, silent_periods: int, now: int) -> None:
        if len(dict.fromkeys(neighbours)) != len(neighbours):
            raise LocalError("a neighbour is named twice")
        self.present: dict[Address, None] = {}
        self.acquaintances: dict[Address, None] = {}
        self._known = {name: _Neighbour(name.encode(), True) for name in neighbours}
        self._period_us, self._silence_us = period_us, silent_periods * period_us
        self._numbers: dict[Address, int] = {}
        self._heard_us: dict[Address, int] = {}
        self._last_us = self._well_since_us = self._beat_us = now

    def __contains__(self, name: Address) -> bool:
        return name in self._known or name in self.acquaintances

    @property
    def neighbours(self) -> list[Address]:
        """All neighbours, present or not."""
        return list(self._known)

    @property
    def heartbeat_targets(self) -> list[Address]:
        """The nodes that heartbeats go to."""
        return [*self._known, *self.acquaintances]

    def reaches(self, name: Address) -> bool:
        return name in self.present or name in self.acquaintances

    def set_acquaintances(self, names: Collection[Address], now: int) -> list[Address]:
        """Replace all acquaintances by these, without neighbours. Returns those that are removed."""
        gone = [name for name in self.acquaintances if name not in names]
        for name in gone:
            self.mark_lost(name)
        for name in names:
            if name not in self._known and name not in self.acquaintances:
                self.acquaintances[name] = None
                self._heard_us[name] = now
        return gone

    def identity(self, name: Address) -> bytes:
        """The certified key of a neighbour; its address if it has shown none."""
        neighbour = self._known.get(name)
        return name.encode() if neighbour is None else neighbour.identity

    def find_by_identity(self, identity: bytes) -> Address | None:
        """The neighbour with this identity."""
        return next((name for name, known in self._known.items() if known.identity == identity), None)

    def chosen(self) -> list[Address]:
        """The neighbours that this node or its owner chose, present or not; not the peers that came."""
        return [name for name, known in self._known.items() if known.chosen]

    def is_chosen(self, name: Address) -> bool:
        neighbour = self._known.get(name)
        return neighbour is not None and neighbour.chosen

    def add(self, name: Address, now: int, key: bytes = b"", *, chosen: bool = True) -> bool:
        """Add a neighbour, with its certified key if it has shown one; False if it is a neighbour already."""
        is_new = name not in self._known
        self._known[name] = _Neighbour(key or name.encode(), chosen)
        if not is_new:
            return False
        self._heard_us[name] = now
        return True

    def remove(self, name: Address) -> None:
        """Remove a neighbour, and mark it absent."""
        self._known.pop(name, None)
        self.present.pop(name, None)
        self._numbers.pop(name, None)
        self._heard_us.pop(name, None)

    def is_fresh(self, name: Address, now: int) -> bool:
        """True if this neighbour was heard just now, or could not be, because this node was stopped or cut off."""
        return now - self._well_since_us <= 2 * self._period_us or self.was_heard_within(name, now)

    def was_heard_within(self, name: Address, now: int, periods: float = 2) -> bool:
        """True if this neighbour was heard within `periods` periods."""
        return now - self._heard_us.get(name, 0) <= periods * self._period_us

    def unheard_us(self, now: int) -> int:
        """Time since any neighbour was heard, in microseconds."""
        return now - self._last_us

    def is_repeated(self, name: Address, number: int) -> bool:
        """True if this is the same heartbeat as the last one of this neighbour."""
        return self._numbers.get(name) == number

    def is_overtaken(self, name: Address, number: int) -> bool:
        """True if a later heartbeat of the same run came before this one."""
        return name in self._numbers and 0 < (self._numbers[name] - number) % NUMBERS < _JUMP

    def hear(self, name: Address, number: int, now: int) -> bool:
        """A heartbeat came. False if the neighbour is new, back or restarted, or if a heartbeat was missed before this
        one."""
        if now - self._last_us > 2 * self._period_us:
            self._well_since_us = now
        self._last_us = self._heard_us[name] = now
        before = self._numbers.get(name)
        self._numbers[name] = number
        if name in self.acquaintances:
            return True
        follows = before is None or (number - before) % NUMBERS == 1
        return not self.mark_present(name) and follows

    def mark_present(self, name: Address) -> bool:
        """False if the neighbour was present already."""
        if name in self.present:
            return False
        self.present[name] = None
        return True

    def mark_lost(self, name: Address) -> bool:
        """False if the neighbour was not present. Its next run may begin at any number."""
        if not self.reaches(name):
            return False
        self.present.pop(name, None)
        self.acquaintances.pop(name, None)
        self._numbers.pop(name, None)
        self._heard_us.pop(name, None)
        return True

    def find_silent(self, now: int) -> list[Address]:
        """The failed neighbours. The node calls this once for each own heartbeat."""
        if now - self._beat_us > 2 * self._period_us:
            self._well_since_us = now
        self._beat_us = now
        if now - self._last_us > 2 * self._period_us:
            return []
        since = self._well_since_us
        expected = dict.fromkeys((*self.present, *self._heard_us))
        return [name for name in expected if now - max(since, self._heard_us.get(name, since)) > self._silence_us]


class _Neighbour(NamedTuple):
    identity: bytes
    chosen: bool


_JUMP: Final = 1024
"""Numbers this far apart belong to two runs. Closer ones may have overtaken one another."""
