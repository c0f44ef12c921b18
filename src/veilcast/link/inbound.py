"""One lane, on the side that receives: chunks in any order and number become messages, each once and in order.

All that is kept is bounded, whatever a peer sends: chunks that came too early by the window, a message of which the end
is missing by the longest there is.
"""

from __future__ import annotations

from veilcast.errors import ExcessError, MalformedError
from veilcast.link.chunks import NUMBERS, distance
from veilcast.link.outbound import WINDOW
from veilcast.wire.geometry import MESSAGE_MAX


class Inbound:
    def __init__(self, first: int = 0) -> None:
        self._expected = first
        self._early: dict[int, tuple[bytes, int | None]] = {}
        self._partial = bytearray()

    def __len__(self) -> int:
        """Bytes kept for later."""
        return len(self._partial) + sum(len(content) for content, _ in self._early.values())

    def accept(self, wire: int, content: bytes, zeros: int | None) -> list[tuple[bytes, int]] | None:
        """The messages that this chunk completes, each with the zeros to restore; None if it changes nothing."""
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
        """The number expected next, as written, and a bit for each that came before its turn."""
        beyond = 0
        for number in self._early:
            beyond |= 1 << (number - self._expected - 1)
        return self._expected % NUMBERS, beyond

    def _append(self, content: bytes, zeros: int | None, complete: list[tuple[bytes, int]]) -> None:
        if len(self._partial) + len(content) + (zeros or 0) > MESSAGE_MAX:
            raise ExcessError("a message longer than any may be")
        if zeros is None:
            self._partial += content
        elif self._partial:
            complete.append((bytes(self._partial) + content, zeros))
            self._partial.clear()
        else:
            complete.append((content, zeros))
