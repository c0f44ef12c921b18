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

from veilcast.core.rate_limit import TokenBucket
from veilcast.link.generations import SessionGenerations
from veilcast.link.pacing import CellSlots
from veilcast.link.path_validation import PeerPath
from veilcast.link.session import LinkSession
from veilcast.link.transfer import Transfer


class KeyedChannel:
    """Keys, and what is carried under them: a link from one handshake at the door until the next."""

    __slots__ = ("generations", "since_us", "transfer")

    def __init__(self, generations: SessionGenerations, transfer: Transfer, now: int) -> None:
        self.generations, self.transfer, self.since_us = generations, transfer, now


class Link:
    __slots__ = (
        "_unsure",
        "allowance",
        "awaiting_since_us",
        "channel",
        "is_reported_up",
        "is_up",
        "last_heard_us",
        "last_message_us",
        "last_sent_us",
        "name",
        "rival_channel",
        "route",
        "since_us",
        "slot_count",
        "slots",
        "timer_us",
    )

    def __init__(self, route: PeerPath, slots: CellSlots, allowance: TokenBucket, now: int) -> None:
        self.name, self.route = route.home, route
        self.slots = slots
        self.allowance = allowance
        """What the peer may make us take."""
        self.channel: KeyedChannel | None = None
        self.rival_channel: KeyedChannel | None = None
        self.is_up = False
        self.is_reported_up = False
        """Whether the machine inside believes that it is up."""
        self.last_heard_us = now
        """When the last authentic datagram came."""
        self.awaiting_since_us = now
        """When we last began to wait for an acknowledgement."""
        self.last_sent_us = now
        """When our machine last had something to say, or the link began."""
        self.since_us = now
        self.last_message_us = now
        """When a machine last had something to say, at either end."""
        self.slot_count = 0
        self.timer_us: int | None = None
        self._unsure: deque[tuple[bytes, int]] = deque(maxlen=UNSURE_MAX)
        """What was said and may not have arrived, and when."""

    def connect(self, line: KeyedChannel, now: int) -> None:
        """There are keys: what was said before them is carried now. Not to somebody else than it was said to."""
        if self.channel is not None and self.channel.generations.remote_static != line.generations.remote_static:
            self._unsure.clear()
        self.channel, self.rival_channel, self.is_up, self.last_heard_us, self.awaiting_since_us = (
            line,
            None,
            False,
            now,
            now,
        )
        for message, said_us in self._unsure:
            line.transfer.put(message, now=said_us)

    def disconnect(self) -> None:
        """The keys are of no use: begin again, with what was said so far."""
        self.channel = self.rival_channel = None
        self.is_up = False

    def open(self, datagram: bytes, now: int) -> bytes | None:
        """The body; None for what is not of this link. A datagram of the rival makes it the line."""
        if self.channel is not None and (body := self.channel.generations.open(datagram, now)) is not None:
            return body
        if self.rival_channel is not None and (body := self.rival_channel.generations.open(datagram, now)) is not None:
            self.connect(self.rival_channel, now)
            return body
        return None

    @property
    def newest_received(self) -> tuple[LinkSession, int] | None:
        """The peer's newest word: it changes with every datagram that was sealed later than all others so far."""
        return (
            None
            if self.channel is None
            else (self.channel.generations.session, self.channel.generations.session.newest)
        )

    def send(self, message: bytes, now: int) -> None:
        self.last_sent_us = self.last_message_us = now
        if self.channel is None:
            # Only the newest: a peer that comes late asks for all there is.
            while len(self._unsure) >= EARLY_MAX:
                self._unsure.popleft()
        else:
            if self.channel.transfer.is_settled:
                self._unsure.clear()
                self.awaiting_since_us = now
            self.channel.transfer.put(message, now=now)
        self._unsure.append((message, now))

    @property
    def oldest_waiting_us(self) -> int | None:
        """Since when the message waits that has waited longest for its turn; None if none does."""
        if self.channel is not None:
            return self.channel.transfer.oldest_waiting_us
        return self._unsure[0][1] if self._unsure else None


EARLY_MAX: Final = 4
UNSURE_MAX: Final = 64
