"""Heartbeats: one size, one period, and they carry every message except notifications (P0 4.1).

Management messages wait in a queue for each neighbour and leave in order, with the next heartbeat that has room. The
period never depends on the queues, so an observer sees neither when a message was made nor whether there was one.
Heartbeats are numbered from a random number that each run of a node draws: a neighbour recognises a restart by the
jump.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Final

from veilcast.errors import MalformedError
from veilcast.machine import Address, Frame
from veilcast.mesh.limits import NeighbourQueue, make_plain_queue
from veilcast.wire import decode, encode, pad, unpad
from veilcast.wire.base import Message
from veilcast.wire.geometry import HEARTBEAT_MAX, LENGTH_PREFIX
from veilcast.wire.mesh import TYPE_BYTES, Advert, Heartbeat, Invite, Subscribe


class Heartbeats:
    """The sending side: the queues, and the beat."""

    def __init__(
        self,
        *,
        period_us: int,
        size: int,
        queue_max: int,
        first_us: int,
        first_number: int,
        new_queue: Callable[[int], NeighbourQueue] = make_plain_queue,
    ) -> None:
        self._period_us, self._size = period_us, size
        self._queue_max, self._new_queue = queue_max, new_queue
        self._queues: dict[Address, NeighbourQueue] = {}
        self._number = first_number
        self.sent: Counter[str] = Counter()
        self.next_us = first_us

    def send(self, message: Message, neighbours: Sequence[Address]) -> None:
        """Queue a message. A full queue drops an old one: the newest describes the current state."""
        data = encode(message)
        self.sent[type(message).__name__] += len(neighbours)
        for neighbour in neighbours:
            queue = self._queues.get(neighbour)
            if queue is None:
                queue = self._queues[neighbour] = self._new_queue(self._queue_max)
            queue.append(data)

    def forget(self, neighbour: Address) -> None:
        self._queues.pop(neighbour, None)

    def drop_topic_state(self, neighbour: Address) -> None:
        """The exchange about topics with this neighbour starts again: drop queued offers and requests, which would only
        cause delay.

        Queued withdrawals stay: a heartbeat with the withdrawn offer or request may be in flight.
        """
        queue = self._queues.pop(neighbour, None)
        if queue is None:
            return
        waiting = [queue.popleft() for _ in range(len(queue))]
        kept = [data for data in waiting if data[0] not in _SAID_AGAIN]
        if kept:
            fresh = self._queues[neighbour] = self._new_queue(self._queue_max)
            for data in kept:
                fresh.append(data)

    def beat(self, neighbours: Sequence[Address], now: int) -> list[Frame]:
        """One heartbeat for each neighbour. Missed beats are not made up for: that would be a burst."""
        self.skip(now)
        self._number = (self._number + 1) % NUMBERS
        idle = pad(encode(Heartbeat(self._number, ())), self._size)
        return [Frame(name, self._loaded(name) if self._queues.get(name) else idle) for name in neighbours]

    def skip(self, now: int) -> None:
        """Let this beat pass."""
        self.next_us += (max(0, now - self.next_us) // self._period_us + 1) * self._period_us

    def count_queued(self) -> int:
        return sum(len(queue) for queue in self._queues.values())

    def _loaded(self, neighbour: Address) -> bytes:
        queue, room = self._queues[neighbour], self._size - _WRAPPING
        riders: list[bytes] = []
        while queue and len(queue[0]) <= room and len(riders) < HEARTBEAT_MAX:
            riders.append(queue.popleft())
            room -= len(riders[-1]) + _RIDER
        if not queue:
            del self._queues[neighbour]
        return pad(encode(Heartbeat(self._number, tuple(riders))), self._size)


def read_heartbeat(data: bytes, size: int) -> Heartbeat:
    """The heartbeat in this block; raises `MalformedError` for another message or a wrong size. The messages in it are
    not decoded."""
    if len(data) != size:
        raise MalformedError("a heartbeat of another size")
    beat = decode(unpad(data))
    if not isinstance(beat, Heartbeat):
        raise MalformedError("not a heartbeat")
    return beat


_SAID_AGAIN: Final = frozenset(number for number, kind in TYPE_BYTES.items() if kind in (Advert, Subscribe, Invite))
NUMBERS: Final = 1 << 32
"""After the last number comes 0."""
_RIDER: Final = 3
"""Bytes that MessagePack puts before a byte string of this length."""
_WRAPPING: Final = LENGTH_PREFIX + 16
"""The padding's length field, the type byte, the array heads, the number, and a margin."""
