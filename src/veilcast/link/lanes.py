"""One lane of a transfer: the sending side cuts messages into numbered chunks, the receiving side joins them.

A message is cut when it leaves, to the room there is, so cells are full when much waits. At most `WINDOW` chunks are in
flight beyond the first unacknowledged one; the receiver stores no more. The queue is bounded too: if a message does not
fit, the oldest messages that have not begun to leave are dropped whole.

The receiver accepts chunks in any order and any number of times, and delivers each message once and in order. Its
memory is bounded whatever the peer sends: early chunks by the window, an incomplete message by the longest message.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from veilcast.errors import ExcessError, MalformedError
from veilcast.link.chunks import NUMBERS, distance, write_chunk
from veilcast.wire.geometry import CHUNK_HEAD, CHUNK_MAX, MESSAGE_MAX, ZEROS_FIELD


class SendingLane:
    """Numbers grow without end here. They wrap only on the wire."""

    def __init__(self, lane: int, first: int = 0) -> None:
        self.lane = lane
        self.first_unacknowledged = first
        """The first number that the peer has not acknowledged."""
        self.next_number = first
        self.acknowledged_bits = 0
        """A bit for each number after `first_unacknowledged` that the peer has acknowledged."""
        self.queue: deque[tuple[bytes, int, int]] = deque()
        """Messages without their trailing zeros, the number of those zeros, and the time at which the message was
        queued. A part of the first message may have left."""
        self.dropped = 0
        self._queued = 0
        self._begun = 0
        self._ends: deque[tuple[int, int]] = deque()

    def put(self, content: bytes, zeros: int, now: int = 0) -> None:
        self._queued += len(content) + MESSAGE_COST
        self.queue.append((content, zeros, now))
        while self._queued > QUEUE_MAX:
            # The first message stays if a part of it has left: the other side cannot use half a message.
            oldest = 1 if self._begun else 0
            self._queued -= len(self.queue[oldest][0]) + MESSAGE_COST
            del self.queue[oldest]
            self.dropped += 1

    def cut(self, room: int, zeros_max: int) -> tuple[bytes, int] | None:
        """The next chunk, and the zeros it restores; None if the window is full or the room is too small."""
        if not self.queue or self.next_number - self.first_unacknowledged >= WINDOW:
            return None
        content, zeros, _ = self.queue[0]
        rest = len(content) - self._begun
        size = min(rest, CHUNK_MAX, room - (CHUNK_HEAD + ZEROS_FIELD if zeros else CHUNK_HEAD))
        if size < rest:
            if size < CUT_MIN:
                return None
            chunk = write_chunk(self.lane, self.next_number, content[self._begun : self._begun + size], None)
            self._begun += size
            self.next_number += 1
            return chunk, 0
        if zeros > zeros_max:
            return None
        chunk = write_chunk(self.lane, self.next_number, content[self._begun :], zeros)
        if zeros:
            self._ends.append((self.next_number, zeros))
        self._queued -= len(content) + MESSAGE_COST
        self._begun = 0
        self.queue.popleft()
        self.next_number += 1
        return chunk, zeros

    def check_acknowledgement(self, expected: int, beyond: int) -> int:
        """How far this acknowledgement goes past the last one; negative if it is older. Raises if it acknowledges an
        unsent chunk."""
        step = distance(expected, self.first_unacknowledged)
        if step >= 0 and self.first_unacknowledged + step + beyond.bit_length() >= self.next_number + (beyond == 0):
            raise MalformedError("an acknowledgement of a chunk that was never sent")
        return step

    def advance(self, step: int, beyond: int) -> tuple[list[int], int]:
        """Apply an acknowledgement. Returns the numbers that it adds, and the zeros that are no longer in flight.

        Some of the numbers may have been acknowledged before, out of order.
        """
        numbers = list(range(self.first_unacknowledged, self.first_unacknowledged + step))
        self.first_unacknowledged += step
        self.acknowledged_bits >>= step
        fresh = beyond & ~self.acknowledged_bits
        self.acknowledged_bits |= fresh
        while fresh:
            bit = fresh.bit_length()
            numbers.append(self.first_unacknowledged + bit)
            fresh ^= 1 << (bit - 1)
        zeros = 0
        while self._ends and self._ends[0][0] < self.first_unacknowledged:
            zeros += self._ends.popleft()[1]
        return numbers, zeros


class ReceivingLane:
    def __init__(self, first: int = 0) -> None:
        self._expected = first
        self._early: dict[int, tuple[bytes, int | None]] = {}
        self._partial = bytearray()

    def __len__(self) -> int:
        """Stored bytes."""
        return len(self._partial) + sum(len(content) for content, _ in self._early.values())

    def accept(self, wire: int, content: bytes, zeros: int | None) -> list[tuple[bytes, int]] | None:
        """The messages that this chunk completes, each with the zeros to restore; None if the chunk changes nothing."""
        ahead = distance(wire, self._expected)
        if ahead < 0:
            return None
        if ahead >= WINDOW:
            raise MalformedError("a chunk far ahead of all that are missing")
        if ahead > 0:
            if self._expected + ahead in self._early:
                return None
            self._early[self._expected + ahead] = (content, zeros)
            return []
        self._expected += 1
        complete: list[tuple[bytes, int]] = []
        self._append(content, zeros, complete)
        while self._early and (chunk := self._early.pop(self._expected, None)) is not None:
            self._expected += 1
            self._append(*chunk, complete)
        return complete

    def acknowledgement(self) -> tuple[int, int]:
        """The next expected number as written on the wire, and a bit for each later number that has arrived."""
        beyond = 0
        for number in self._early:
            beyond |= 1 << (number - self._expected - 1)
        return self._expected % NUMBERS, beyond

    def _append(self, content: bytes, zeros: int | None, complete: list[tuple[bytes, int]]) -> None:
        if len(self._partial) + len(content) + (zeros or 0) > MESSAGE_MAX:
            raise ExcessError("a message over the size limit")
        if zeros is None:
            self._partial += content
        elif self._partial:
            complete.append((bytes(self._partial) + content, zeros))
            self._partial.clear()
        else:
            complete.append((content, zeros))


WINDOW: Final = 64
"""Chunks of a lane in flight. At 16 cells per second and a round trip of one second, this is four times what long
messages can use."""
CUT_MIN: Final = 128
"""A message is not cut for less room than this, in bytes: each cut is one more chunk that can be lost."""
MESSAGE_COST: Final = 64
"""Bytes that a message counts in the queue on top of its own, so that a bound on bytes bounds their number too."""
QUEUE_MAX: Final = 5 * (MESSAGE_MAX + MESSAGE_COST)
"""Bytes that wait in a lane: five of the longest messages, or about 2,500 heartbeats."""
