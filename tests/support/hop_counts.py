"""Counts the links that each note took before its delivery, and the time."""

from __future__ import annotations

from contextlib import suppress
from typing import Any, NamedTuple

from veilcast.errors import RemoteError
from veilcast.machine import Address, Delivered, Event
from veilcast.sim.wrappers import MachineWrapper
from veilcast.wire import decode
from veilcast.wire.mesh import Notify, Stem


class Trip(NamedTuple):
    hops: int
    took_us: int


class HopCounts:
    """Hops of the notes of one network or world, read below the links of the machines. Notes must come one after
    another, so that a node delivers the last note that it received."""

    def __init__(self, first_us: int, every_us: int) -> None:
        """Times from the epoch that machines know, of when notes are published."""
        self._first_us, self._every_us = first_us, every_us
        self._depths: dict[tuple[Address, bytes], int] = {}
        self._last: dict[Address, bytes] = {}
        self.trips: list[Trip] = []

    def follow(self, machine: Any, address: Address) -> Any:
        """Listen inside the links of this machine."""
        machine.inner = _HopTap(machine.inner, self, address)
        return machine

    def heard(self, data: bytes, source: Address, address: Address) -> None:
        with suppress(RemoteError):
            message = decode(data)
            if isinstance(message, Stem):
                message = decode(message.cargo)
            if isinstance(message, Notify) and (address, message.sealed) not in self._depths:
                # Whoever has it from nobody has it from its owner.
                self._depths[address, message.sealed] = self._depths.get((source, message.sealed), 0) + 1
                self._last[address] = message.sealed

    def take(self, address: Address, event: Event, now: int) -> None:
        if isinstance(event, Delivered):
            number = int(event.note.publication.body.split()[1])
            hops = self._depths[address, self._last[address]]
            self.trips.append(Trip(hops, now - self._first_us - number * self._every_us))


class _HopTap(MachineWrapper):
    def __init__(self, inner: Any, journeys: HopCounts, address: Address) -> None:
        super().__init__(inner)
        self._journeys, self._address = journeys, address

    def receive(self, data: bytes, source: Address, now: int) -> None:
        if data[:1] != b"\0":
            self._journeys.heard(data, source, self._address)
        super().receive(data, source, now)
