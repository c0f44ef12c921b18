"""A link: all that a node has to do with one peer, from the first knock to the last cell.

It is closed while there are no keys: then every slot carries a letter. Once it has them it is open, and every slot
carries a cell; it is up when the peer has shown, by a cell, that it has the keys as well. An open link may get a rival,
another handshake with the same peer: of a peer that lost its memory, or of one that knocked while we did. The rival
takes over with its first cell, and what may not have arrived by the old line is said again by the new.

So a message arrives once on a line, and in order with its like; over a change of lines, of which both machines are
told, it may arrive again.

`name` is what the machine inside calls the peer, for ever; `route` says where it is now.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from veilcast.link.bucket import TokenBucket
from veilcast.link.generations import Generations
from veilcast.link.pacing import Slots
from veilcast.link.path_validation import Route
from veilcast.link.session import Session
from veilcast.link.transfer import Transfer


class Line:
    """Keys, and what is carried under them: a link from one handshake at the door until the next."""

    __slots__ = ("generations", "since_us", "transfer")

    def __init__(self, generations: Generations, transfer: Transfer, now: int) -> None:
        self.generations, self.transfer, self.since_us = generations, transfer, now


class Link:
    __slots__ = (
        "_unsure",
        "alarm_us",
        "allowance",
        "asked_us",
        "heard_us",
        "line",
        "name",
        "rival",
        "route",
        "said_us",
        "since_us",
        "slots",
        "spoken_us",
        "told",
        "turn",
        "up",
    )

    def __init__(self, route: Route, slots: Slots, allowance: TokenBucket, now: int) -> None:
        self.name, self.route = route.home, route
        self.slots = slots
        self.allowance = allowance
        """What the peer may make us take."""
        self.line: Line | None = None
        self.rival: Line | None = None
        self.up = False
        self.told = False
        """Whether the machine inside believes that it is up."""
        self.heard_us = now
        """When the last authentic datagram came."""
        self.asked_us = now
        """When we last began to wait for an acknowledgement."""
        self.said_us = now
        """When our machine last had something to say, or the link began."""
        self.since_us = now
        self.spoken_us = now
        """When a machine last had something to say, at either end."""
        self.turn = 0
        self.alarm_us: int | None = None
        self._unsure: deque[tuple[bytes, int]] = deque(maxlen=UNSURE_MAX)
        """What was said and may not have arrived, and when."""

    def connect(self, line: Line, now: int) -> None:
        """There are keys: what was said before them is carried now. Not to somebody else than it was said to."""
        if self.line is not None and self.line.generations.remote != line.generations.remote:
            self._unsure.clear()
        self.line, self.rival, self.up, self.heard_us, self.asked_us = line, None, False, now, now
        for message, said_us in self._unsure:
            line.transfer.put(message, now=said_us)

    def disconnect(self) -> None:
        """The keys are of no use: begin again, with what was said so far."""
        self.line = self.rival = None
        self.up = False

    def open(self, datagram: bytes, now: int) -> bytes | None:
        """The body; None for what is not of this link. A datagram of the rival makes it the line."""
        if self.line is not None and (body := self.line.generations.open(datagram, now)) is not None:
            return body
        if self.rival is not None and (body := self.rival.generations.open(datagram, now)) is not None:
            self.connect(self.rival, now)
            return body
        return None

    @property
    def newest(self) -> tuple[Session, int] | None:
        """The peer's newest word: it changes with every datagram that was sealed later than all others so far."""
        return None if self.line is None else (self.line.generations.session, self.line.generations.session.newest)

    def say(self, message: bytes, now: int) -> None:
        self.said_us = self.spoken_us = now
        if self.line is None:
            # Only the newest: a peer that comes late asks for all there is.
            while len(self._unsure) >= EARLY_MAX:
                self._unsure.popleft()
        else:
            if self.line.transfer.settled:
                self._unsure.clear()
                self.asked_us = now
            self.line.transfer.put(message, now=now)
        self._unsure.append((message, now))

    @property
    def oldest_us(self) -> int | None:
        """Since when the message waits that has waited longest for its turn; None if none does."""
        if self.line is not None:
            return self.line.transfer.oldest_us
        return self._unsure[0][1] if self._unsure else None


EARLY_MAX: Final = 4
UNSURE_MAX: Final = 64
