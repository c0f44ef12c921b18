"""Checkers of the tree: that what is published climbs along trees, and goes nowhere else."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from veilcast.machine import Address, Frame
from veilcast.sim.checkers import Checker, ViolationError
from veilcast.tree.purposes import HOP
from veilcast.wire import decode
from veilcast.wire.tree import TYPE_BYTES, Carry, Offer

if TYPE_CHECKING:
    from veilcast.sim.world import World


class Frugal(Checker):
    """No message is sent on to more entries of routing tables than there are on the ways to those who want it.

    The same message for the same entry again is a repeat, and counts once. For the hardened profile: only there do
    messages say which entry they are for.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._entries: dict[bytes, dict[bytes, None]] = {}

    def on_frames(self, world: World, address: Address, frames: Sequence[Frame]) -> None:
        for frame in frames:
            if frame.data[:1] == _CARRY:
                message = decode(frame.data)
                assert isinstance(message, Carry)
                entries = self._entries.setdefault(message.message, {})
                entries[message.entry] = None
                if len(entries) > self._most:
                    raise ViolationError(f"{address} sends a message on to entry {len(entries)} of {self._most}")


class Traffic(Checker):
    """Counts the copies of publications that nodes send to their parents, by node; more than `most` are too many."""

    def __init__(self, most: int) -> None:
        self._most = most
        self.sent: Counter[Address] = Counter()
        self.total = 0

    def on_frames(self, world: World, address: Address, frames: Sequence[Frame]) -> None:
        for frame in frames:
            if frame.data[:1] in (_CARRY, _OFFER) and frame.destination.startswith(_TO_PARENT):
                self.sent[address] += 1
                self.total += 1
        if self.total > self._most:
            raise ViolationError(f"{self.total} copies, and there is no end of it")


_TYPE_OF = {kind: bytes((number,)) for number, kind in TYPE_BYTES.items()}
_TO_PARENT = f"{HOP}@"
_CARRY, _OFFER = _TYPE_OF[Carry], _TYPE_OF[Offer]
