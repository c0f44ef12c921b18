"""Records on a stream: four bytes of length, then that many bytes, up to a limit.

The same records come out however the stream is split on its way. An empty record carries nothing for a machine: it is
the welcome by which the callee tells the caller that it is let in.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final

from veilcast.errors import ExcessError
from veilcast.net.stream_setup import FrameFormat


def encode_length(data: bytes) -> bytes:
    """Return the prefix of a record."""
    return _LENGTH.pack(len(data))


def encode_record(data: bytes) -> bytes:
    return encode_length(data) + data


class RecordReader:
    """Buffers at most one incomplete record and the rest of the last chunk."""

    __slots__ = ("_buffer", "_record_max")

    def __init__(self, record_max: int) -> None:
        self._record_max = record_max
        self._buffer = bytearray()

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        """Yield the records that end in this chunk. Raises `ExcessError` if a prefix announces a record that is too
        long."""
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
