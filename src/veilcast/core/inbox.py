"""The inbox of a member: each note once for each subscription, and again until its owner says that it has it.

Where somebody holds a note for its reader, as the relay's server does, the receipt is given only when the owner has
acknowledged the note. So nothing is lost with a machine that dies, and one that is full takes no more, and need not
drop anything.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from veilcast.core.timers import Timers
from veilcast.machine import Delivered, Note

ReceiptStub: TypeAlias = tuple[bytes, bytes]
"""The name and ticket of one delivery, by which its receipt is given, where anybody waits for one."""


class Inbox:
    """Bounded: `unread_max` notes that are not acknowledged, and the last `seen_max` that were."""

    def __init__(self, *, unread_max: int, seen_max: int, again_us: int) -> None:
        self._unread_max, self._seen_max, self._again_us = unread_max, seen_max, again_us
        self._unread: dict[bytes, _Unread] = {}
        self._seen: dict[tuple[int, bytes], None] = {}
        self._alarms: Timers[bytes] = Timers()
        self._ready: deque[Delivered] = deque()

    def __len__(self) -> int:
        return len(self._unread)

    def __contains__(self, note: bytes) -> bool:
        """Whether it is here, and not acknowledged."""
        return note in self._unread

    @property
    def seen_count(self) -> int:
        return len(self._seen)

    def put(self, readers: Sequence[int], note: Note, stub: ReceiptStub | None, now: int) -> bool:
        """A note for these subscriptions; True if all of them have it already, and its receipt may be given."""
        new = [reader for reader in readers if (reader, note.id) not in self._seen]
        if not new:
            return True
        unread = self._unread.get(note.id)
        if unread is None:
            if len(self._unread) >= self._unread_max:
                return False
            unread = self._unread[note.id] = _Unread(note)
            self._alarms.set(note.id, now + self._again_us)
        if stub is not None:
            name, ticket = stub
            unread.stubs[name] = ticket
        for reader in new:
            if reader not in unread.readers:
                unread.readers[reader] = None
                self._ready.append(Delivered(reader, note))
        return False

    def acknowledge(self, note: bytes) -> list[ReceiptStub]:
        """The owner has the note: the receipts to give."""
        unread = self._unread.pop(note, None)
        if unread is None:
            return []
        self._alarms.cancel(note)
        for reader in unread.readers:
            self._seen[reader, note] = None
        while len(self._seen) > self._seen_max:
            del self._seen[next(iter(self._seen))]
        return list(unread.stubs.items())

    def end_subscription(self, reader: int) -> list[ReceiptStub]:
        """The subscription has ended: nothing is delivered for it any more; the receipts to give."""
        left = []
        for note, unread in list(self._unread.items()):
            unread.readers.pop(reader, None)
            if not unread.readers:
                left += self.acknowledge(note)
        return left

    def next_delivery(self) -> Delivered | None:
        while self._ready:
            delivered = self._ready.popleft()
            unread = self._unread.get(delivered.note.id)
            if unread is not None and delivered.number in unread.readers:
                return delivered
        return None

    def next_us(self) -> int | None:
        return self._alarms.next_us()

    def handle(self, now: int) -> None:
        """Deliver again what nobody acknowledged."""
        for note in self._alarms.pop_due(now):
            unread = self._unread[note]
            self._alarms.set(note, now + self._again_us)
            self._ready.extend(Delivered(reader, unread.note) for reader in unread.readers)


@dataclass(slots=True)
class _Unread:
    note: Note
    readers: dict[int, None] = field(default_factory=dict)
    stubs: dict[bytes, bytes] = field(default_factory=dict)
    """The last ticket under each name: a server that sends again may give others."""
