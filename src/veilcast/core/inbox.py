"""The inbox of a member: each notification once for each subscription, and again until the client acknowledges it.

Where a server holds notifications for its subscribers, as the relay's does, the member gives the receipt only when the
client has acknowledged the notification. So a machine that dies loses nothing, and a full inbox refuses more and drops
nothing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from veilcast.core.bounded import BoundedSet
from veilcast.core.timers import Timers
from veilcast.machine import Delivered, Note

ReceiptStub: TypeAlias = tuple[bytes, bytes]
"""The name and the ticket of one delivery: what its receipt is made of, where a server waits for one."""


class Inbox:
    """At most `unread_max` notifications that are not acknowledged, and the ids of the last `seen_max` that were.

    A notification that is not acknowledged is delivered again every `again_us`.
    """

    def __init__(self, *, unread_max: int, seen_max: int, again_us: int) -> None:
        self._unread_max, self._again_us = unread_max, again_us
        self._unread: dict[bytes, _Unread] = {}
        self._seen: BoundedSet[tuple[int, bytes]] = BoundedSet(seen_max)
        """Subscriptions and the notifications that they had."""
        self._timers: Timers[bytes] = Timers()
        self._ready: deque[Delivered] = deque()

    def __len__(self) -> int:
        return len(self._unread)

    def __contains__(self, note: bytes) -> bool:
        """True if the notification of this id is here and not acknowledged."""
        return note in self._unread

    @property
    def seen_count(self) -> int:
        return len(self._seen)

    def put(self, numbers: Sequence[int], note: Note, stub: ReceiptStub | None, now: int) -> bool:
        """Deliver a notification to these subscriptions.

        True if all of them have acknowledged it already, so that its receipt may be given. If the inbox is full, it
        takes nothing.
        """
        new = [number for number in numbers if (number, note.id) not in self._seen]
        if not new:
            return True
        unread = self._unread.get(note.id)
        if unread is None:
            if len(self._unread) >= self._unread_max:
                return False
            unread = self._unread[note.id] = _Unread(note)
            self._timers.set(note.id, now + self._again_us)
        if stub is not None:
            name, ticket = stub
            unread.stubs[name] = ticket
        for number in new:
            if number not in unread.numbers:
                unread.numbers[number] = None
                self._ready.append(Delivered(number, note))
        return False

    def acknowledge(self, note: bytes) -> list[ReceiptStub]:
        """The client has the notification. Returns the receipts to give."""
        unread = self._unread.pop(note, None)
        if unread is None:
            return []
        self._timers.cancel(note)
        for number in unread.numbers:
            self._seen.add((number, note))
        return list(unread.stubs.items())

    def end_subscription(self, number: int) -> list[ReceiptStub]:
        """Deliver nothing more for this subscription. Returns the receipts to give."""
        left = []
        for note, unread in list(self._unread.items()):
            unread.numbers.pop(number, None)
            if not unread.numbers:
                left += self.acknowledge(note)
        return left

    def next_delivery(self) -> Delivered | None:
        while self._ready:
            delivered = self._ready.popleft()
            unread = self._unread.get(delivered.note.id)
            if unread is not None and delivered.number in unread.numbers:
                return delivered
        return None

    def next_us(self) -> int | None:
        return self._timers.next_us()

    def handle(self, now: int) -> None:
        """Deliver again what the client has not acknowledged."""
        for note in self._timers.pop_due(now):
            unread = self._unread[note]
            self._timers.set(note, now + self._again_us)
            self._ready.extend(Delivered(number, unread.note) for number in unread.numbers)


@dataclass(slots=True)
class _Unread:
    note: Note
    numbers: dict[int, None] = field(default_factory=dict)
    """The subscriptions that it is for."""
    stubs: dict[bytes, bytes] = field(default_factory=dict)
    """The last ticket under each name: a server that sends a notification again may give another ticket."""
