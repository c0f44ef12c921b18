"""A link: all that a node has to do with one peer, from the first knock to the last cell.

It is closed while there are no keys: then every slot carries a letter. Once it has them it is open, and every slot
carries a cell; it is up when the peer has shown, by a cell, that it has the keys as well. An open link may get a rival,
another handshake with the same peer: of a peer that lost its memory, or of one that knocked while we did. The rival
takes over with its first cell, and what may not have arrived by the old line is said again by the new.

`name` is what the machine inside calls the peer, for ever; `path` is where it is now.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from veilcast.link.generations import Generations
from veilcast.link.pacing import Slots
from veilcast.link.transfer import Transfer
from veilcast.machine import Address


class Line:
    """Keys, and what is carried under them: a link from one handshake at the door until the next."""

    __slots__ = ("generations", "since_us", "transfer")

    def __init__(self, generations: Generations, transfer: Transfer, now: int) -> None:
        self.generations, self.transfer, self.since_us = generations, transfer, now


class Link:
    __slots__ = ("_unsure", "heard_us", "line", "name", "path", "rival", "slots", "spoken_us", "turn", "up")

    def __init__(self, name: Address, slots: Slots, now: int) -> None:
        self.name = self.path = name
        self.slots = slots
        self.line: Line | None = None
        self.rival: Line | None = None
        self.up = False
        self.heard_us = now
        """When the last authentic datagram came."""
        self.spoken_us = now
        """When a machine last had something to say, at either end."""
        self.turn = 0
        self._unsure: deque[bytes] = deque(maxlen=UNSURE_MAX)
        """What was said and may not have arrived."""

    def connect(self, line: Line, now: int) -> None:
        """There are keys: what was said before them is carried now."""
        self.line, self.rival, self.up, self.heard_us = line, None, False, now
        for message in self._unsure:
            line.transfer.put(message)

    def open(self, datagram: bytes, now: int) -> bytes | None:
        """The body; None for what is not of this link. A datagram of the rival makes it the line."""
        if self.line is not None and (body := self.line.generations.open(datagram, now)) is not None:
            return body
        if self.rival is not None and (body := self.rival.generations.open(datagram, now)) is not None:
            self.connect(self.rival, now)
            return body
        return None

    def say(self, message: bytes, now: int) -> None:
        self.spoken_us = now
        if self.line is None:
            # Only the newest: a peer that comes late asks for all there is.
            while len(self._unsure) >= EARLY_MAX:
                self._unsure.popleft()
        else:
            if self.line.transfer.settled:
                self._unsure.clear()
            self.line.transfer.put(message)
        self._unsure.append(message)


EARLY_MAX: Final = 4
UNSURE_MAX: Final = 64
