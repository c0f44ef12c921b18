"""The outbox of a publisher: publications that are not settled, kept by the driver over restarts.

A publication gets its place in the publisher's streams at once, and is written to the disk. It leaves when the driver
confirms that it is written, and under the same place however often, and in whichever life of the node, it is sent. So:

1. A subscriber recognises a repeat by its place.
2. A publication that the client was told is safe is never lost.
3. No place is used twice. Each life of a node draws a stream of its own when it begins, so a number that an earlier
   life used and had not written yet belongs to another stream.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, Generic, TypeVar

import msgspec

from veilcast.core.durable_records import DurableRecords
from veilcast.core.publication import NumberedPublication, cell_stream
from veilcast.core.timers import Timers
from veilcast.crypto.derive import digest
from veilcast.decoding import MsgpackDecoder
from veilcast.errors import LocalError, TamperedError
from veilcast.machine import Entropy, Event, Overdue, Publication
from veilcast.wire.geometry import NOTE_ID

Sending = TypeVar("Sending")


class PendingPublication(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A publication for one of the topics that it is labelled with, in its place there."""

    topic: str
    content: NumberedPublication


def publication_id(pending: PendingPublication) -> bytes:
    """The id under which an application knows a publication, in modes that deliver in no order.

    It is a digest of the whole publication and not of its place alone. So no other publisher of the topic can take the
    place of a publication that is still to come.
    """
    return digest(_ENCODER.encode(pending), purpose=b"vc/letter", size=NOTE_ID)


class Outbox:
    """At most `records_max` publications that are not settled. Those of earlier lives count, and all of them are kept.

    `kept` has what earlier lives asked for and did not settle, by record. The record `reserved` is not a publication.
    """

    def __init__(self, entropy: Entropy, kept: Mapping[int, bytes], records_max: int, reserved: int = 0) -> None:
        self._stream, self._records_max = entropy(8), records_max
        self._numbers: dict[tuple[str, bytes], int] = {}
        """The number of the last publication in each topic and stream."""
        self._open = {number: decode_record(data) for number, data in kept.items() if number != reserved}
        self._records = DurableRecords((reserved, *self._open))

    def __len__(self) -> int:
        return len(self._open)

    @property
    def is_full(self) -> bool:
        return len(self._open) >= self._records_max

    def check_capacity(self) -> None:
        """Raise `LocalError` if there is no room for one more publication."""
        if self.is_full:
            raise LocalError(f"{len(self._open)} publications wait already; try again when some are through")

    def unsettled(self) -> Iterator[tuple[int, PendingPublication]]:
        """All publications that are on the disk and not settled, with their records, oldest first."""
        written = ((number, pending) for number, pending in self._open.items() if number not in self._records)
        return ((number, one) for number, pending in sorted(written) for one in pending)

    def draft(self, topic: str, cell: bytes | None, publication: Publication) -> PendingPublication:
        """The publication in the next place of our stream of this topic or cell. `keep` is what takes the place."""
        stream = cell_stream(self._stream, cell)
        number = self._numbers.get((topic, stream), 0) + 1
        return PendingPublication(topic, NumberedPublication(stream, number, publication))

    def keep(self, drafts: Sequence[PendingPublication]) -> int:
        """Ask the driver to write one publication, on all its topics or none. Returns the number of the record."""
        self.check_capacity()
        for topic, content in ((draft.topic, draft.content) for draft in drafts):
            self._numbers[topic, content.stream] = content.number
        record = self._records.keep(_ENCODER.encode(tuple(drafts)))
        self._open[record] = tuple(drafts)
        return record

    def stored(self, record: int) -> Sequence[PendingPublication]:
        """The driver confirms that this record is written. Returns what may leave now; nothing at a second call."""
        if record not in self._records:
            return ()
        self._records.stored(record, 0)
        return self._open[record]

    def settle(self, record: int, pending: PendingPublication) -> None:
        """This publication is done on one topic. If it is done on all topics, the record is settled."""
        if record in self._open:
            self._open[record] = tuple(other for other in self._open[record] if other != pending)
            if not self._open[record]:
                self.drop(record)

    def drop(self, record: int) -> None:
        """Settle the record, whatever became of its publication."""
        if self._open.pop(record, None) is not None:
            self._records.settle(record)

    def next_event(self) -> Event | None:
        return self._records.next_event()


class Sendings(Generic[Sending]):
    """The sendings under way for each record of an outbox, and the timer that reports a record as overdue.

    Every `wait_us` in which a record is not finished, an `Overdue` event tells the client. The record is tried on.
    """

    def __init__(self, wait_us: int) -> None:
        self._wait_us = wait_us
        self._sendings: dict[int, list[Sending]] = {}
        self._publications: dict[int, Publication] = {}
        self._overdue: Timers[int] = Timers()
        self._events: deque[Overdue] = deque()

    def __len__(self) -> int:
        return sum(map(len, self._sendings.values()))

    def __iter__(self) -> Iterator[Sending]:
        """All sendings, by the order in which their records began."""
        return (sending for sendings in self._sendings.values() for sending in sendings)

    def of(self, record: int) -> Sequence[Sending]:
        return self._sendings.get(record, ())

    def add(self, record: int, sending: Sending, publication: Publication, now: int) -> None:
        """Begin one sending of the record's publication. The first one starts the record's timer."""
        self._sendings.setdefault(record, []).append(sending)
        self._publications[record] = publication
        if record not in self._overdue:
            self._overdue.set(record, now + self._wait_us)

    def finish(self, record: int, sending: Sending) -> bool:
        """End one sending. True if it was the last one of its record, whose timer ends with it."""
        left = self._sendings.get(record)
        if left is None or sending not in left:
            return False
        left.remove(sending)
        if left:
            return False
        self.withdraw(record)
        return True

    def withdraw(self, record: int) -> list[Sending]:
        """End all sendings of the record, and return them."""
        self.stop_timer(record)
        self._publications.pop(record, None)
        return self._sendings.pop(record, [])

    def stop_timer(self, record: int) -> None:
        """Report this record as overdue no more, although it has sendings."""
        self._overdue.cancel(record)

    def next_us(self) -> int | None:
        return self._overdue.next_us()

    def handle(self, now: int) -> None:
        for record in self._overdue.pop_due(now):
            self._overdue.set(record, now + self._wait_us)
            self._events.append(Overdue(record, self._publications[record]))

    def next_event(self) -> Overdue | None:
        return self._events.popleft() if self._events else None


def decode_record(data: bytes) -> tuple[PendingPublication, ...]:
    """The publication that an outbox asked to be written, once for each of its topics. Raises `TamperedError`."""
    return _DECODER.decode(data)


_ENCODER: Final = msgspec.msgpack.Encoder()
_DECODER: Final = MsgpackDecoder(
    tuple[PendingPublication, ...], TamperedError, "a record of what was published is damaged"
)
