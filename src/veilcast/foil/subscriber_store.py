"""The subscriber's durable state: ids of read notifications, so that a restarted subscriber recognises repeats.

A broker has seen all messages, and may send them again at any time; and a restarted subscriber asks for repeats of what
it may have missed. Acknowledged notifications are recognised by their ids, stored in records of several ids each; an id
stays the same when an event is rebuilt for another session. The first id is written at once and the following ones soon
after, together: a run that ends in between may be followed by one that delivers these few again.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from veilcast.foil.publisher_store import PublisherStore
from veilcast.wire.geometry import NOTE_ID


class SubscriberStore:
    """Holds the ids of notifications that earlier runs read. Bounded: about `seen_max` of them, and as many again on
    disk."""

    def __init__(self, store: PublisherStore, seen_max: int) -> None:
        self._store, self._records_max = store, max(1, -(-seen_max // IDS_PER_RECORD))
        stored = [(record, _split(notes)) for record, notes in store.read_ids()]
        self._records = deque(record for record, _ in stored)
        self._earlier = {note for _, notes in stored for note in notes}
        self._record: int | None = None
        self._ids: list[bytes] = []
        """Ids of the record that is being filled; many short runs fill one."""
        if stored and len(stored[-1][1]) < IDS_PER_RECORD:
            self._record, self._ids = stored[-1]
        self._wrote_us = 0
        self._due_us: int | None = None

    def __contains__(self, note: bytes) -> bool:
        return note in self._earlier

    def __len__(self) -> int:
        return len(self._earlier)

    def add(self, note: bytes, now: int) -> None:
        self._ids.append(note)
        if self._due_us is None:
            self._due_us = max(now, self._wrote_us + WRITE_PAUSE_US)
        if len(self._ids) >= IDS_PER_RECORD:
            self._write(now)
            self._ids, self._record = [], None
        self.handle(now)

    def handle(self, now: int) -> None:
        if self._due_us is not None and now >= self._due_us:
            self._write(now)

    def next_us(self) -> int | None:
        return self._due_us

    def _write(self, now: int) -> None:
        self._wrote_us, self._due_us = now, None
        if not self._ids:
            return
        record = self._store.store_read_ids(b"".join(self._ids), self._record)
        if self._record is None:
            self._record = record
            self._records.append(record)
        while len(self._records) > self._records_max + 1:
            self._store.settle(self._records.popleft())


def _split(notes: bytes) -> list[bytes]:
    return [notes[at : at + NOTE_ID] for at in range(0, len(notes) - NOTE_ID + 1, NOTE_ID)]


IDS_PER_RECORD: Final = 256
WRITE_PAUSE_US: Final = 1_000_000
