"""The publisher's durable state: its events as they leave, byte for byte, and the state of its fakes.

A publication is two records. The first holds its events, one for each topic, with the state of that topic's fakes after
it. It stays for as long as the event may have to be repeated, and longer while it is the last one of its topic, for the
state. The second marks the publication as unacknowledged, and is settled when the broker has acknowledged all of it:
the owner waits for that. They are written in this order. So every promised publication is stored, and a state is never
older than an event that has left: fakes that jumped would reveal the candidate that did not.

One more record holds the member's own secret; others hold the ids of notifications that were read (`subscriber_store`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Final, TypeAlias

import msgspec

from veilcast.core.durable_records import DurableRecords, WhenDurable
from veilcast.core.outbox import PendingPublication
from veilcast.crypto.secret import Secret
from veilcast.decoding import MsgpackDecoder
from veilcast.errors import LocalError, TamperedError
from veilcast.foil.topic_names import Coordinate


class StoredEvent(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """An event on one topic. `places` are its candidates in the order of their slots; the truth is in `slot`."""

    pending: PendingPublication
    published_us: int
    places: tuple[tuple[Coordinate, ...], ...]
    slot: int
    period: int
    stream: bytes
    number: int
    fake_key: bytes
    sealed: bytes
    state: bytes


class _Own(msgspec.Struct, frozen=True, array_like=True, tag="own", forbid_unknown_fields=True):
    secret: Annotated[bytes, msgspec.Meta(min_length=1)]


class _Events(msgspec.Struct, frozen=True, array_like=True, tag="events", forbid_unknown_fields=True):
    items: tuple[StoredEvent, ...]


class _Read(msgspec.Struct, frozen=True, array_like=True, tag="read", forbid_unknown_fields=True):
    notes: bytes


class _Open(msgspec.Struct, frozen=True, array_like=True, tag="open", forbid_unknown_fields=True):
    events: int


_AnyRecord: TypeAlias = _Own | _Events | _Read | _Open


class PublisherStore:
    """Bounded: `records_max` unacknowledged publications, and `kept_max` acknowledged ones.

    `records` holds the records that earlier runs stored and did not settle.
    """

    def __init__(self, records: Mapping[int, bytes], records_max: int, kept_max: int, now: int) -> None:
        self._records_max, self._kept_max = records_max, kept_max
        self._records = DurableRecords(records)
        self._items: dict[int, tuple[StoredEvent, ...]] = {}
        self._open: dict[int, int] = {}
        """For each events record of an unacknowledged publication, the record by which the owner knows it."""
        self._acknowledged_us: dict[int, int] = {}
        """Time by which the broker had all of each publication."""
        self._last: dict[str, int] = {}
        """The record with the state of each topic's fakes."""
        self.secret: Secret | None = None
        self._decode: dict[int, bytes] = {}
        for number, data in sorted(records.items()):
            match _decode(data):
                case _Own(secret):
                    self.secret = Secret(secret)
                case _Events(items):
                    self._take(number, items)
                case _Read(notes):
                    self._decode[number] = notes
                case _Open(events):
                    self._open[events] = number
        self._open = {events: record for events, record in self._open.items() if events in self._items}
        self._acknowledged_us = dict.fromkeys((events for events in self._items if events not in self._open), now)
        self.stored, self.next_event, self.settle = self._records.stored, self._records.next_event, self._records.settle

    def __len__(self) -> int:
        return len(self._items)

    @property
    def pending_count(self) -> int:
        """Unacknowledged publications."""
        return len(self._open)

    def store_secret(self, secret: Secret) -> None:
        self.secret = secret
        self._records.keep(_ENCODER.encode(_Own(secret.reveal())))

    def read_ids(self) -> list[tuple[int, bytes]]:
        """Ids of notifications that earlier runs read, by record, oldest first."""
        return sorted(self._decode.items())

    def store_read_ids(self, notes: bytes, record: int | None) -> int:
        """Write ids of read notifications, in place of `record` if given."""
        return self._records.keep(_ENCODER.encode(_Read(notes)), record)

    def check_capacity(self) -> None:
        if len(self._open) >= self._records_max:
            raise LocalError(f"{len(self._open)} publications wait already; try again when some are acknowledged")

    def store(self, items: tuple[StoredEvent, ...], now: int, then: WhenDurable) -> tuple[int, int]:
        """Write a publication. Returns the record of its events and its own. Calls `then` when all is durable."""
        self.check_capacity()
        events = self._records.keep(_ENCODER.encode(_Events(items)))
        self._take(events, items)
        record = self._records.keep(_ENCODER.encode(_Open(events)))
        self._open[events] = record
        self._records.when_durable(record, now, then)
        return events, record

    def replace(self, events: int, items: tuple[StoredEvent, ...], now: int, then: WhenDurable) -> None:
        """Write its events again, as they will leave."""
        self._items[events] = items
        self._records.keep(_ENCODER.encode(_Events(items)), events)
        self._records.when_durable(events, now, then)

    def items(self, events: int) -> tuple[StoredEvent, ...]:
        return self._items.get(events, ())

    def unsettled(self) -> Iterator[int]:
        """Events records of unacknowledged publications, oldest first."""
        return iter(list(self._open))

    def record_of(self, events: int) -> int | None:
        """The record by which the owner knows an unacknowledged publication."""
        return self._open.get(events)

    def events_of(self, record: int) -> int | None:
        return next((events for events, known in self._open.items() if known == record), None)

    def settle_publication(self, events: int, now: int) -> None:
        """The broker has all of it."""
        record = self._open.pop(events, None)
        if record is not None:
            self._acknowledged_us[events] = now
            self._records.settle(record)

    def withdraw(self, events: int, now: int) -> None:
        """The owner wants it neither sent nor repeated; only the state of its fakes stays."""
        items = tuple(msgspec.structs.replace(item, period=NO_PERIOD) for item in self._items[events])
        self.replace(events, items, now, lambda _: None)
        self.settle_publication(events, now)

    def find_events(self, topic: str, period: int, since_us: int, until_us: int) -> Iterator[tuple[int, int]]:
        """Events on this topic and in this period that the broker may have had to deliver within this time, by record
        and place.

        A subscriber may have missed an event from its publication until the broker had all of it, which may be much
        later.
        """
        for events, items in self._items.items():
            acknowledged_us = self._acknowledged_us.get(events, until_us)
            for place, item in enumerate(items):
                here = item.period == period and item.pending.topic == topic
                if here and item.published_us <= until_us and since_us <= acknowledged_us:
                    yield events, place

    def streams(self) -> dict[bytes, tuple[str, int]]:
        """All streams with events that subscribers may ask about, with their topics and periods."""
        return {item.stream: (item.pending.topic, item.period) for items in self._items.values() for item in items}

    def generator_state(self, topic: str) -> bytes | None:
        """The state from which a topic's fakes continue."""
        events = self._last.get(topic)
        return (
            None if events is None else next(item.state for item in self._items[events] if item.pending.topic == topic)
        )

    def expire(self, before_us: int) -> None:
        """Discard events that the broker had before that time, and the oldest beyond the capacity."""
        excess = len(self._items) - self._kept_max
        expired = []
        for events, acknowledged_us in self._acknowledged_us.items():
            if excess <= 0 and acknowledged_us >= before_us:
                break  # Entries are in order of time.
            if events not in self._last.values():
                expired.append(events)
                excess -= 1
        for events in expired:
            del self._items[events], self._acknowledged_us[events]
            self._records.settle(events)

    def _take(self, events: int, items: tuple[StoredEvent, ...]) -> None:
        self._items[events] = items
        for item in items:
            self._last[item.pending.topic] = events


def _decode(data: bytes) -> _AnyRecord:
    record: _AnyRecord = _DECODER.decode(data)
    return record


NO_PERIOD: Final = -1
"""Marks an event that must not leave."""
_ENCODER: Final = msgspec.msgpack.Encoder()
_DECODER: Final = MsgpackDecoder(_AnyRecord, TamperedError, "a record of what was published is damaged")
