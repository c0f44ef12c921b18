"""The trace: one hash over everything observable in a run.

Each record is a time, a number and a content: a frame on a link (arrival, number of the link, data), or a note of
anything else (time, a negative code, content). Records are collected in one flat list and hashed a chunk at a time,
because a call into the hash for each frame would cost more than the frame. The encoding (MessagePack) tells any two
lists apart. Chunks end at a count of items, never at a call. So two runs have the same digest exactly if they have the
same records in the same order.

On a link without faults, the arrival tells when a frame was sent. With link faults it does not, so each batch of frames
follows a note of the time (`SENT`).
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Final

import msgspec

from veilcast.machine import Event


class RunDigest:
    """`records` is public for the engine's loop, which adds three items a frame and flushes at `CHUNK`."""

    __slots__ = ("_hash", "records")

    def __init__(self) -> None:
        self.records: list[int | bytes | str | Event] = []
        self._hash = blake2b(digest_size=32, person=b"veilcast.trace")

    def add_note(self, time: int, code: int, data: bytes) -> None:
        self.records += (time, code, data)
        if len(self.records) >= CHUNK:
            self.flush()

    def add_event(self, time: int, host: int, event: Event) -> None:
        """Add a machine's event: the number of its host, the type's name and all fields."""
        self.records += (time, EVENTS - host, type(event).__name__, event)
        if len(self.records) >= CHUNK:
            self.flush()

    def flush(self) -> None:
        """Hash all full chunks, and keep the rest for the next."""
        while len(self.records) >= CHUNK:
            self._hash.update(_ENCODER.encode(self.records[:CHUNK]))
            del self.records[:CHUNK]

    def digest(self) -> str:
        """The hash so far, in hexadecimal; more records may follow."""
        whole = self._hash.copy()
        whole.update(_ENCODER.encode(self.records))
        return whole.hexdigest()


CHUNK: Final = 3 * 4096
LOST: Final = -1
"""Replaces the arrival of a lost frame."""

# Codes of notes.
LINK: Final = -1
BIRTH: Final = -2
CRASH: Final = -3
PAUSE: Final = -4
RESUME: Final = -5
BLOCK: Final = -6
UNBLOCK: Final = -7
CLOCK: Final = -8
WEATHER: Final = -9
SENT: Final = -10
CUT: Final = -11
EVENTS: Final = -100
"""The code of events of host 0; that of host n is n less."""

_ENCODER: Final = msgspec.msgpack.Encoder(order="deterministic")
"""Sorts sets and dicts, and refuses values without a canonical form, so that no event makes a trace depend on memory
addresses."""
