"""The pacer: records of one size at one interval between a client and its proxy, with or without traffic.

Pacing is optional. An observer of a client's stream sees when the client is online and nothing else: neither when it
publishes nor how much it receives. The pacer concatenates messages, each with its length in front, and cuts the bytes
into records. The rest of a record is zeros. Streams deliver records in order and lose none; the pacer gives up a stream
that violates this.

A record: its number (4) | bytes used (2) | that many message bytes | zeros.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Final

from veilcast.core.timers import Timers
from veilcast.errors import MalformedError, RemoteError, StaleError
from veilcast.machine import Address, Frame
from veilcast.relay.config import RelayClientConfig, RelayProxyConfig
from veilcast.wire.geometry import LENGTH_PREFIX, MESSAGE_MAX


class Pacer:
    """All paced streams of a machine. Bounded: `backlog_max` waiting messages, and one partially received message,
    for each stream."""

    def __init__(self, rng: Random, *, period_us: int, record_bytes: int, backlog_max: int) -> None:
        self._rng, self._period_us, self._backlog_max = rng, period_us, backlog_max
        self._capacity = record_bytes - HEAD
        self._streams: dict[Address, _Stream] = {}
        self._timers: Timers[Address] = Timers()

    def __len__(self) -> int:
        """Waiting messages on the stream with the longest queue."""
        return max((stream.waiting for stream in self._streams.values()), default=0)

    def stream_up(self, peer: Address, now: int) -> None:
        """Start pacing: the first record leaves at a random moment, the others follow at the constant interval."""
        self._streams[peer] = stream = _Stream(now + self._rng.randrange(self._period_us) + 1)
        self._timers.set(peer, stream.due_us)

    def stream_down(self, peer: Address) -> None:
        self._streams.pop(peer, None)
        self._timers.cancel(peer)

    def put(self, peer: Address, data: bytes) -> bool:
        """Queue a message; False if there is no stream or its queue is full."""
        stream = self._streams.get(peer)
        if stream is None or stream.waiting >= self._backlog_max:
            return False
        stream.out += len(data).to_bytes(LENGTH_PREFIX, "big") + data
        stream.ends.append(stream.queued + len(stream.out))
        return True

    def unpack_record(self, peer: Address, record: bytes) -> list[bytes]:
        """The messages that this record completes; raises `RemoteError` if the stream is not a valid stream of
        records."""
        stream = self._streams.get(peer)
        if stream is None or len(record) != HEAD + self._capacity:
            raise MalformedError("not a record of a stream that is up")
        number, used = int.from_bytes(record[:4], "big"), int.from_bytes(record[4:HEAD], "big")
        if number != stream.expected:
            raise StaleError("a record is missing or repeated")
        if used > self._capacity or any(record[HEAD + used :]):
            raise MalformedError("a record that is not filled up with zeros")
        stream.expected = (number + 1) % _NUMBERS
        stream.parts += record[HEAD : HEAD + used]
        return stream.take_messages()

    def next_us(self) -> int | None:
        return self._timers.next_us()

    def handle(self, now: int) -> list[Frame]:
        """The records that are due. A late record does not delay the next one, and missed records are not made up for.

        So the times of later records show nothing of how busy the machine was.
        """
        frames = []
        for peer in self._timers.pop_due(now):
            stream = self._streams[peer]
            frames.append(Frame(peer, stream.record(self._capacity)))
            stream.due_us += self._period_us * ((now - stream.due_us) // self._period_us + 1)
            self._timers.set(peer, stream.due_us)
        return frames


def make_pacer(config: RelayClientConfig | RelayProxyConfig, rng: Random) -> Pacer | None:
    """A pacer with these settings; None if streams are not paced."""
    if not config.rate_us:
        return None
    size, most = config.record_bytes, config.backlog_max
    return Pacer(rng, period_us=config.rate_us, record_bytes=size, backlog_max=most)


def unpack_frame(pacer: Pacer | None, data: bytes, peer: Address, give_up: Callable[[], object]) -> list[bytes]:
    """The messages in a frame: the frame itself, or those that its record completes. Calls `give_up` for an invalid
    stream."""
    if pacer is None:
        return [data]
    try:
        return pacer.unpack_record(peer, data)
    except RemoteError:
        give_up()
        raise


@dataclass(slots=True)
class _Stream:
    due_us: int
    out: bytearray = field(default_factory=bytearray)
    ends: list[int] = field(default_factory=list)
    """Offset at which each waiting message ends, from the beginning of the stream."""
    queued: int = 0
    """Bytes that have left."""
    number: int = 0
    parts: bytearray = field(default_factory=bytearray)
    expected: int = 0

    @property
    def waiting(self) -> int:
        return len(self.ends)

    def record(self, capacity: int) -> bytes:
        used = bytes(self.out[:capacity])
        del self.out[:capacity]
        self.queued += len(used)
        while self.ends and self.ends[0] <= self.queued:
            del self.ends[0]
        head = self.number.to_bytes(4, "big") + len(used).to_bytes(2, "big")
        self.number = (self.number + 1) % _NUMBERS
        return (head + used).ljust(HEAD + capacity, b"\0")

    def take_messages(self) -> list[bytes]:
        messages = []
        while len(self.parts) >= LENGTH_PREFIX:
            end = LENGTH_PREFIX + int.from_bytes(self.parts[:LENGTH_PREFIX], "big")
            if end > LENGTH_PREFIX + MESSAGE_MAX:
                raise MalformedError("a message of impossible length")
            if len(self.parts) < end:
                break
            messages.append(bytes(self.parts[LENGTH_PREFIX:end]))
            del self.parts[:end]
        return messages


HEAD: Final = 6
_NUMBERS: Final = 1 << 32
