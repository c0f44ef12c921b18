"""Neighbour links: the nodes that this node exchanges heartbeats with, and the effects of opening and closing such a
link.

Implements the `NeighbourhoodContext`. A node may also write to guests: a node that is not a neighbour gets one
heartbeat, which looks like any other and carries one message. The driver is asked to connect to a new neighbour, and
told when the connection is no longer needed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

import msgspec

from veilcast.machine import Address, Connect, Disconnect, Event, Record
from veilcast.mesh.heartbeat import Heartbeats
from veilcast.mesh.neighbour_record import NeighbourRecord, RelayRecord
from veilcast.mesh.neighbour_table import NeighbourTable
from veilcast.wire.base import Message


class NeighbourLinks:
    """Bounded: at most `guests_max` guests in one heartbeat. `version` rises with every change."""

    def __init__(
        self,
        members: NeighbourTable,
        beats: Heartbeats,
        on_end: Callable[[Address, int], None],
        kept: NeighbourRecord,
        *,
        guests_max: int,
    ) -> None:
        self._members, self._beats, self._on_end, self._guests_max = members, beats, on_end, guests_max
        self._kept = kept
        self._guests: dict[Address, None] = {}
        self._events: deque[Event] = deque()
        self.version = 0

    def is_present(self, name: Address) -> bool:
        return name in self._members.present

    def is_fresh(self, name: Address, now: int) -> bool:
        return self._members.is_fresh(name, now)

    def unheard_us(self, now: int) -> int:
        return self._members.unheard_us(now)

    def open(self, name: Address, now: int, key: bytes = b"", *, chosen: bool = True) -> None:
        self.version += 1
        if self._members.add(name, now, key, chosen=chosen):
            self._events.append(Connect(name))
        self._guests.pop(name, None)

    def close(self, name: Address, now: int) -> None:
        self.version += 1
        self.mark_lost(name, now)
        self._members.remove(name)
        self._beats.forget(name)
        self._events.append(Disconnect(name))

    def mark_lost(self, name: Address, now: int) -> None:
        """A neighbour is gone, at least for now."""
        if self._members.mark_lost(name):
            self._beats.forget(name)
            self._on_end(name, now)

    def send(self, name: Address, message: Message) -> None:
        if name not in self._members:
            if name in self._guests or len(self._guests) >= self._guests_max:
                return
            self._guests[name] = None
        self._beats.send(message, (name,))

    def store_anchors(self, anchors: list[Address]) -> None:
        self._write(msgspec.structs.replace(self._kept, anchors=list(anchors)))

    def store_relay(self, relay: RelayRecord) -> None:
        """Have the driver store the first relay for the next run."""
        self._write(msgspec.structs.replace(self._kept, relay=relay))

    def next_event(self) -> Event | None:
        return self._events.popleft() if self._events else None

    def take_heartbeat_targets(self) -> list[Address]:
        """The recipients of the due heartbeat. Clears the guests."""
        guests, self._guests = self._guests, {}
        return [*self._members.heartbeat_targets, *guests]

    def _write(self, kept: NeighbourRecord) -> None:
        self._kept = kept
        self._events.append(Record(NEIGHBOUR_RECORD, kept.encode()))


NEIGHBOUR_RECORD: Final = 1
"""Number of the neighbours' record among the records of a node."""
