"""Cuts a stream of MQTT into packets, each with its header. A frame of a machine that speaks MQTT is one packet.

The packets do not depend on how the stream was cut in transit. An incomplete packet is kept; one longer than the limit
is rejected as soon as its length is known.
"""

from __future__ import annotations

from collections.abc import Iterator

from veilcast.errors import ExcessError
from veilcast.wire.mqtt.fields import read_length


class PacketReader:
    __slots__ = ("_buffer", "_packet_max")

    def __init__(self, packet_max: int) -> None:
        """`packet_max` is the longest whole packet, in bytes, as in version 5."""
        self._packet_max = packet_max
        self._buffer = bytearray()

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        """The packets that end in this chunk.

        Raises `ExcessError` for a packet that will be too long, and `MalformedError` for a broken length.
        """
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
