"""Cuts a stream of MQTT into packets, each with its header: a frame of a machine that speaks MQTT is one of them.

However a stream is cut on its way, the same packets come out of it. What has come of one that is not whole is kept,
and nothing longer than the limit is waited for.
"""

from __future__ import annotations

from collections.abc import Iterator

from veilcast.errors import ExcessError
from veilcast.wire.mqtt.fields import read_length


class PacketReader:
    __slots__ = ("_buffer", "_packet_max")

    def __init__(self, packet_max: int) -> None:
        """`packet_max` is of whole packets, as in version 5."""
        self._packet_max = packet_max
        self._buffer = bytearray()

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        """The packets that end in this chunk; `ExcessError` where one announces itself that is too long, and
        `MalformedError` where no length is to be read."""
        buffer = self._buffer
        buffer += chunk
        start, size = 0, len(buffer)
        with memoryview(buffer) as view:
            while found := read_length(view, start + 1):
                length, body = found
                end = body + length
                if end - start > self._packet_max:
                    raise ExcessError("a packet is too long")
                if end > size:
                    break
                yield bytes(view[start:end])
                start = end
        del buffer[:start]
