"""Letters: what the owner published and is not through yet, kept by the driver over restarts.

A publication gets its place in our streams at once, and is written down; it leaves when the driver says that it is on
the disk, and always under the same place, however often and in whichever life of the node it is sent. So readers know a
repeat, and nothing that the owner was told is safe can be lost. Each life has a stream of its own, drawn when it
begins: whatever an earlier one had numbered and had not written down yet, none of its numbers is used again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import msgspec

from veilcast.core.publication import NumberedPublication, cell_stream
from veilcast.crypto.derive import digest
from veilcast.decoding import MsgpackDecoder
from veilcast.errors import LocalError, TamperedError
from veilcast.machine import Entropy, Event, Publication, Record, Settled
from veilcast.wire.geometry import NOTE_ID


class PendingPublication(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A publication for one of the topics that it is labelled with, in its place there."""

    topic: str
    content: NumberedPublication


def publication_id(letter: PendingPublication) -> bytes:
    """What an application knows a letter by where notes come in no order: all of it, and not its place alone.

    So no other publisher of the topic can take the place of one that is still to come.
    """
    return digest(_ENCODER.encode(letter), purpose=b"vc/letter", size=NOTE_ID)


class Outbox:
    """Bounded: at most `records_max` publications that are not settled; those of earlier lives count, and all are kept.

    `unsettled` is what earlier lives asked for and did not settle; the record `reserved` is another's, and not for us.
    """

    def __init__(self, entropy: Entropy, kept: Mapping[int, bytes], records_max: int, reserved: int = 0) -> None:
        self._stream, self._records_max = entropy(8), records_max
        self._numbers: dict[tuple[str, bytes], int] = {}
        self._open = {number: decode_record(data) for number, data in kept.items() if number != reserved}
        self._last = max(self._open, default=reserved)
        self._unwritten: dict[int, None] = {}
        self._events: deque[Event] = deque()

    def __len__(self) -> int:
        return len(self._open)

    @property
    def is_full(self) -> bool:
        return len(self._open) >= self._records_max

    def check_capacity(self) -> None:
        """`LocalError` if there is none for one more."""
        if self.is_full:
            raise LocalError(f"{len(self._open)} publications wait already; try again when some are through")

    def unsettled(self) -> Iterator[tuple[int, PendingPublication]]:
        """All that is on the disk and not settled, oldest first."""
        written = ((number, letters) for number, letters in self._open.items() if number not in self._unwritten)
        return ((number, letter) for number, letters in sorted(written) for letter in letters)

    def draft(self, topic: str, cell: bytes | None, publication: Publication) -> PendingPublication:
        """The publication in the next place of our stream of this topic or cell; `keep` is what takes the place."""
        stream = cell_stream(self._stream, cell)
        return PendingPublication(
            topic, NumberedPublication(stream, self._numbers.get((topic, stream), 0) + 1, publication)
        )

    def keep(self, letters: Sequence[PendingPublication]) -> int:
        """Ask for one publication's letters to be written down, all or none; the number of the record."""
        self.check_capacity()
        for topic, content in ((letter.topic, letter.content) for letter in letters):
            self._numbers[topic, content.stream] = content.number
        self._last += 1
        self._open[self._last] = tuple(letters)
        self._unwritten[self._last] = None
        self._events.append(Record(self._last, _ENCODER.encode(self._open[self._last])))
        return self._last

    def stored(self, record: int) -> Sequence[PendingPublication]:
        """This record is on the disk: what may leave now, once."""
        if record not in self._unwritten:
            return ()
        del self._unwritten[record]
        return self._open[record]

    def settle(self, record: int, letter: PendingPublication) -> None:
        """Nothing more is to be done for this letter; when that is so for all of them, for the record."""
        if record in self._open:
            self._open[record] = tuple(other for other in self._open[record] if other != letter)
            if not self._open[record]:
                self.drop(record)

    def drop(self, record: int) -> None:
        """Nothing more is to be done for the record, whatever became of its letters."""
        if self._open.pop(record, None) is not None:
            self._unwritten.pop(record, None)
            self._events.append(Settled(record))

    def next_event(self) -> Event | None:
        return self._events.popleft() if self._events else None


def decode_record(data: bytes) -> tuple[PendingPublication, ...]:
    """The letters of a publication that a node asked for to be recorded."""
    return _DECODER.decode(data)


_ENCODER: Final = msgspec.msgpack.Encoder()
_DECODER: Final = MsgpackDecoder(
    tuple[PendingPublication, ...], TamperedError, "a record of what was published is damaged"
)
