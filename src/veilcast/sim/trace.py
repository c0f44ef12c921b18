"""The trace: one hash over everything that could be observed of a run.

Each record is a time, a number and some bytes: a frame put on a link (when it will arrive, the link's number, the data),
or a note of anything else (when, a negative code, what). Records are gathered in columns and hashed a chunk at a time,
because a call into the hash for each frame would cost more than the frame. Two runs have the same digest exactly when
they have the same records in the same order.
"""

from __future__ import annotations

from array import array
from hashlib import blake2b
from typing import Final

import msgspec

from veilcast.machine import Event


class Trace:
    """The three columns are open to the engine's loop, which appends to all of them, and flushes when they are full."""

    __slots__ = ("_hash", "data", "numbers", "times")

    def __init__(self) -> None:
        self.times: list[int] = []
        self.numbers: list[int] = []
        self.data: list[bytes] = []
        self._hash = blake2b(digest_size=32, person=b"veilcast.trace")

    def note(self, time: int, code: int, data: bytes) -> None:
        self.times.append(time)
        self.numbers.append(code)
        self.data.append(data)
        if len(self.times) >= CHUNK:
            self.flush()

    def event(self, time: int, host: int, event: Event) -> None:
        """A machine's event: the host's index, the type's name and all fields, in order."""
        self.note(time, EVENT, b"%d %s " % (host, type(event).__name__.encode()) + _ENCODER.encode(event))

    def flush(self) -> None:
        """Hash the full columns; call it at a count of records only, never at a moment of real time."""
        for part in self._parts():
            self._hash.update(part)
        self.times.clear()
        self.numbers.clear()
        self.data.clear()

    def digest(self) -> str:
        """The hash so far, in hexadecimal; the trace goes on."""
        whole = self._hash.copy()
        for part in self._parts():
            whole.update(part)
        return whole.hexdigest()

    def _parts(self) -> tuple[bytes, ...]:
        lengths = list(map(len, self.data))
        columns = ([len(lengths)], self.times, self.numbers, lengths)
        return (*(_little_endian(column) for column in columns), b"".join(self.data))


def _little_endian(column: list[int]) -> bytes:
    words = array("q", column)
    if _BIG_ENDIAN:
        words.byteswap()
    return words.tobytes()


CHUNK: Final = 4096
LOST: Final = -1
"""Stands for the arrival of a frame that does not arrive."""

# The codes of notes. Append only: a trace hash is worth keeping.
EVENT: Final = -1
LINK: Final = -2
BIRTH: Final = -3
CRASH: Final = -4
PAUSE: Final = -5
RESUME: Final = -6
BLOCK: Final = -7
UNBLOCK: Final = -8
CLOCK: Final = -9
WEATHER: Final = -10

_BIG_ENDIAN: Final = array("H", [1]).tobytes() == b"\0\1"
_ENCODER: Final = msgspec.msgpack.Encoder(enc_hook=repr)
