"""A link: the state that a node keeps about one peer, from the first handshake packet to the last cell.

A link is closed while it has no keys; then every slot carries a handshake packet. It is open once it has keys; then
every slot carries a cell. It is up once a cell of the peer proves that the peer has the keys too. An open link may get
a rival channel from another handshake with the same peer: the peer has lost its state, or both sides started a
handshake at once. The rival takes over with its first cell. Messages that may not have arrived over the old channel are
sent again over the new one.

So on one channel a message arrives once, and in order within its lane. When the channel changes, both machines are
told, and a message may arrive again.

`name` is the peer's name for the wrapped machine and never changes. `route` holds the peer's current address.
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
    """Keys and the transfer that uses them: the state of a link from one handshake of strangers to the next."""

    __slots__ = ("generations", "since_us", "transfer")

    def __init__(self, generations: SessionGenerations, transfer: Transfer, now: int) -> None:
        self.generations, self.transfer, self.since_us = generations, transfer, now


class Link:
    __slots__ = (
        "_unconfirmed",
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
    )

    def __init__(self, route: PeerPath, slots: CellSlots, allowance: TokenBucket, now: int) -> None:
        self.name, self.route = route.home, route
        self.slots = slots
        self.allowance = allowance
        """Limits the cells that the peer may make this node process."""
        self.channel: KeyedChannel | None = None
        self.rival_channel: KeyedChannel | None = None
        self.is_up = False
        self.is_reported_up = False
        """True if the wrapped machine has been told that the peer is up."""
        self.last_heard_us = now
        """Time of the last authentic datagram."""
        self.awaiting_since_us = now
        """Time at which this node last began to wait for an acknowledgement."""
        self.last_sent_us = now
        """Time at which the wrapped machine last sent a message, or at which the link began."""
        self.since_us = now
        self.last_message_us = now
        """Time of the last message of either side."""
        self.slot_count = 0
        self._unconfirmed: deque[tuple[bytes, int]] = deque(maxlen=UNCONFIRMED_MAX)
        """Messages that may not have arrived, each with the time at which it was sent."""

    def connect(self, channel: KeyedChannel, now: int) -> None:
        """Use this channel, and send over it the messages that may not have arrived. They are dropped if the peer's key
        is another than before."""
        if self.channel is not None and self.channel.generations.remote_static != channel.generations.remote_static:
            self._unconfirmed.clear()
        self.channel, self.rival_channel, self.is_up, self.last_heard_us, self.awaiting_since_us = (
            channel,
            None,
            False,
            now,
            now,
        )
        for message, said_us in self._unconfirmed:
            channel.transfer.put(message, now=said_us)

    def disconnect(self) -> None:
        """Drop keys that did not work. Unsent messages stay, and the handshake begins again."""
        self.channel = self.rival_channel = None
        self.is_up = False

    def open(self, datagram: bytes, now: int) -> bytes | None:
        """The body of the datagram; None if it does not belong to this link. A datagram of the rival channel makes it
        the channel."""
        if self.channel is not None and (body := self.channel.generations.open(datagram, now)) is not None:
            return body
        if self.rival_channel is not None and (body := self.rival_channel.generations.open(datagram, now)) is not None:
            self.connect(self.rival_channel, now)
            return body
        return None

    @property
    def newest_received(self) -> tuple[LinkSession, int] | None:
        """The peer's newest datagram. The value changes with every datagram that was sealed later than all before."""
        return (
            None
            if self.channel is None
            else (self.channel.generations.session, self.channel.generations.session.newest)
        )

    def send(self, message: bytes, now: int) -> None:
        self.last_sent_us = self.last_message_us = now
        if self.channel is None:
            # Keep only the newest: a peer that comes late asks for all state.
            while len(self._unconfirmed) >= EARLY_MAX:
                self._unconfirmed.popleft()
        else:
            if self.channel.transfer.is_settled:
                self._unconfirmed.clear()
                self.awaiting_since_us = now
            self.channel.transfer.put(message, now=now)
        self._unconfirmed.append((message, now))

    @property
    def oldest_waiting_us(self) -> int | None:
        """Time since which the oldest unsent message waits; None if no message waits."""
        if self.channel is not None:
            return self.channel.transfer.oldest_waiting_us
        return self._unconfirmed[0][1] if self._unconfirmed else None


EARLY_MAX: Final = 4
UNCONFIRMED_MAX: Final = 64
