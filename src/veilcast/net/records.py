"""Records on a stream: four bytes of length, then that many bytes. Nothing of ours is longer than a limit.

However a stream is cut on its way, the same records come out of it. An empty record carries nothing for a machine; by
it who was called tells the caller that it is let in.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final

from veilcast.errors import ExcessError
from veilcast.net.stream_setup import FrameFormat


def encode_length(data: bytes) -> bytes:
    """What goes before a record."""
    return _LENGTH.pack(len(data))


def encode_record(data: bytes) -> bytes:
    return encode_length(data) + data


class RecordReader:
    """Gathers what arrives, at most one record and what came with its end."""

    __slots__ = ("_buffer", "_record_max")

    def __init__(self, record_max: int) -> None:
        self._record_max = record_max
        self._buffer = bytearray()

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        """The records that end in this chunk; `ExcessError` where one announces itself that is too long."""
        buffer = self._buffer
        buffer += chunk
        start, size = 0, len(buffer)
        with memoryview(buffer) as view:
            while size - start >= PREFIX:
                (length,) = _LENGTH.unpack_from(view, start)
                if length > self._record_max:
                    raise ExcessError("a record is too long")
                end = start + PREFIX + length
                if end > size:
                    break
                yield bytes(view[start + PREFIX : end])
                start = end
        del buffer[:start]


_LENGTH: Final = struct.Struct(">I")
PREFIX: Final = _LENGTH.size
WELCOME: Final = b""
RECORDS: Final = FrameFormat(RecordReader, encode_length, has_welcome=True)
