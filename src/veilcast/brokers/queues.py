"""Queues: one for each peer, whose messages arrive in order and once, over as many streams as it takes.

Pure. Streams break; what was written to one may or may not have come. So messages are numbered items of a session, kept
until the peer has heard them, and sent again on the next stream from the first that it lacks. `Hello` opens a stream:
it says which session is ours, and how far we have heard the peer's. Whoever has started anew knows no session any more;
then we begin another, and say so to our machine (`anew`), for its peer has forgotten everything.

So many items are under way at a time; the others wait. Where too many do, the oldest with content or keys are dropped:
these are asked for again, or sent again by their publisher. Claims are never dropped singly. If even they are too many
(a peer that is gone for long) all is dropped, and told again when it is back.

Acknowledgements come a little later, for many items at once. A stream on which something got lost, or where nothing is
heard of what was said, is of no use, though nobody may have noticed its end: it is left for another.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Final

from veilcast.core.timers import Timers, earliest
from veilcast.errors import ExcessError, MalformedError, StaleError
from veilcast.machine import Address, Entropy, Frame
from veilcast.wire import decode, encode
from veilcast.wire.brokers import (
    BringClaim,
    Claim,
    CopyRouting,
    Hello,
    ItemAck,
    OverlayOrder,
    RoutingCopied,
    SessionItem,
    VersionAdopted,
    WithdrawClaim,
)
from veilcast.wire.mesh import Message


class PeerQueues:
    """Bounded, by peer: `window` items under way; `queue_max` and `queue_bytes` that wait, and as many claims, or
    `claims_max` for a peer that is expected: it may have to be told all that there are. What waits for all peers
    together has sixteen times these bytes, however many they are.

    Peers are those that were `expect`ed or `peer_up`, and not `forget`; whoever lets peers in bounds them. `dropped`
    counts what went for want of room.
    """

    def __init__(
        self, window: int, queue_max: int, queue_bytes: int, entropy: Entropy, *, claims_max: int | None = None
    ) -> None:
        self._window, self._queue_max, self._queue_bytes = window, queue_max, queue_bytes
        self._claims_max = queue_max if claims_max is None else claims_max
        self._entropy = entropy
        self._together = min(ACKNOWLEDGE_BATCH, max(1, window // 4))
        self._lines: dict[Address, _PeerQueue] = {}
        self._frames: deque[Frame] = deque()
        self._owed: Timers[Address] = Timers()
        self._watched: Timers[Address] = Timers()
        self._begun: dict[Address, None] = {}
        """Peers of whom we hope to hear, as soon as what is for them has left: only then do we know what time it is."""
        self._last: tuple[Message, bytes] | None = None
        self.restarted: deque[Address] = deque()
        """Peers that have forgotten us, or never knew us."""
        self.stalled: deque[Address] = deque()
        """Peers that are up, and hear too little of what we say, or we of them: only another stream can help."""
        self.dropped = 0

    def __len__(self) -> int:
        """All that waits or is under way."""
        return sum(self.queue_lengths())

    def __contains__(self, peer: Address) -> bool:
        return peer in self._lines

    def queue_lengths(self) -> list[int]:
        """The same, of each peer."""
        return [len(line.waiting) + len(line.sent) for line in self._lines.values()]

    def is_greeted(self, peer: Address) -> bool:
        """Whether it is there and has greeted us."""
        return peer in self._lines and self._lines[peer].is_greeted

    def unacknowledged_count(self, peer: Address) -> int:
        """How many items it has not heard yet."""
        line = self._lines.get(peer)
        return 0 if line is None else len(line.waiting) + len(line.sent)

    # --- streams

    def is_unacknowledged(self, peer: Address, message: Message) -> bool:
        """Whether this message still waits for the peer, or is on its way to it."""
        line, cargo = self._lines.get(peer), encode(message)
        return line is not None and (cargo in line.waiting.values() or any(cargo == sent for _, sent in line.sent))

    def expect(self, peer: Address) -> None:
        """Keep what is for it until its first stream is there."""
        if peer not in self._lines:
            self._lines[peer] = _PeerQueue(self._entropy(_SESSION_BYTES))
        self._lines[peer].is_expected = True

    def has_never_met(self, peer: Address) -> bool:
        """Whether its first greeting said that it knew no life of ours."""
        return peer in self._lines and self._lines[peer].was_known is False

    def peer_up(self, peer: Address) -> None:
        """A driver may say so twice of one stream, to who called twice; the peer greets on it only once."""
        line = self._lines.setdefault(peer, _PeerQueue(self._entropy(_SESSION_BYTES)))
        if not line.is_greeted:
            line.is_up, line.hello_count = True, 0
        self._greet(peer, line)
        self._watch(peer)

    def peer_lost(self, peer: Address) -> None:
        line = self._lines.get(peer)
        if line is not None:
            line.is_up = line.is_greeted = False
            self._unwatch(peer)

    def forget(self, peer: Address) -> None:
        """All that is for it goes; when it comes back it is a stranger."""
        self._lines.pop(peer, None)
        self._unwatch(peer)

    # --- out

    def put(self, peer: Address, message: Message) -> None:
        """Queue it for a peer that is expected or has been up; what is for one that is forgotten goes nowhere."""
        line = self._lines.get(peer)
        if line is None:
            return
        kept = isinstance(message, _NEVER_DROPPED)
        if line.is_lost and kept:
            return  # It is told all of them, when it is back.
        line.add(self._cargo(message), kept)
        self._bound(peer, line)
        self._send(peer, line)

    def frames(self, now: int, limit: int) -> list[Frame]:
        for peer in self._begun:
            self._wait(peer, self._lines[peer], now)
        self._begun.clear()
        return [self._frames.popleft() for _ in range(min(limit, len(self._frames)))]

    def next_us(self) -> int | None:
        return earliest(self._owed.next_us(), self._watched.next_us())

    def handle(self, now: int) -> None:
        """Acknowledge what was heard a while ago, and leave who has not heard us for long."""
        for peer in self._owed.pop_due(now):
            self._acknowledge(peer, self._lines[peer])
        for peer in self._watched.pop_due(now):
            line = self._lines[peer]
            if line.is_greeted and not line.sent:
                continue
            if line.progress_mark == line.progress:
                self.stalled.append(peer)
                continue
            self._wait(peer, line, now)

    # --- in

    def receive(self, data: bytes, peer: Address, now: int) -> Message | None:
        """What a peer that is up has to say to our machine, in order and once; raises for what makes no sense."""
        line = self._lines.get(peer)
        if line is None or not line.is_up:
            raise StaleError("nobody that is up")
        message = decode(data)
        match message:
            case Hello():
                self._greeted(message, peer, line)
            case ItemAck():
                line.acknowledge(message.number)
                self._send(peer, line)
            case SessionItem():
                return self._take(message, peer, line, now)
            case _:
                raise MalformedError("not a message of a session")
        return None

    # --- inside

    def _greet(self, peer: Address, line: _PeerQueue) -> None:
        self._post(peer, Hello(line.session, line.their_session, line.received))

    def _greeted(self, hello: Hello, peer: Address, line: _PeerQueue) -> None:
        line.hello_count += 1
        if line.hello_count > HELLOS_MAX:
            raise ExcessError("more greetings than a stream needs")
        if line.was_known is None:
            line.was_known = hello.theirs is not None
        if hello.session != line.their_session:
            line.their_session, line.received, line.acknowledged = hello.session, 0, 0
        knows_us = hello.theirs == line.session
        if knows_us:
            line.acknowledge(hello.heard)
        elif line.last_sent:  # It lacks what comes before the first that we would send.
            line.begin_session(self._entropy(_SESSION_BYTES))
            self._greet(peer, line)
        if line.is_lost or not knows_us:
            self.restarted.append(peer)
        line.is_greeted, line.is_lost = True, False
        for number, cargo in line.sent:
            self._post(peer, SessionItem(number, cargo))
        self._send(peer, line)

    def _take(self, item: SessionItem, peer: Address, line: _PeerQueue, now: int) -> Message | None:
        if line.their_session is None or not line.hello_count:
            raise MalformedError("an item before a greeting")
        if item.number > line.received + 1:
            if peer not in self.stalled:
                self.stalled.append(peer)
            raise MalformedError("an item out of its order")
        if item.number <= line.received:
            return None
        line.received += 1
        if line.received - line.acknowledged >= self._together:
            self._acknowledge(peer, line)
        elif peer not in self._owed:
            self._owed.set(peer, now + ACKNOWLEDGE_US)
        return decode(item.cargo)

    def _send(self, peer: Address, line: _PeerQueue) -> None:
        """As much as may be under way."""
        if not line.is_greeted:
            return
        while line.waiting and len(line.sent) < self._window:
            self._post(peer, SessionItem(*line.send_next()))
        if line.sent:
            self._watch(peer)

    def _watch(self, peer: Address) -> None:
        if peer not in self._watched:
            self._begun[peer] = None

    def _wait(self, peer: Address, line: _PeerQueue, now: int) -> None:
        line.progress_mark = line.progress
        self._watched.set(peer, now + STALL_US)

    def _unwatch(self, peer: Address) -> None:
        self._owed.cancel(peer)
        self._watched.cancel(peer)
        self._begun.pop(peer, None)

    def _acknowledge(self, peer: Address, line: _PeerQueue) -> None:
        self._owed.cancel(peer)
        line.acknowledged = line.received
        self._post(peer, ItemAck(line.received))

    def _bound(self, peer: Address, line: _PeerQueue) -> None:
        while len(line.droppable) > self._queue_max or line.size > self._queue_bytes:
            if not line.drop_oldest():
                break
            self.dropped += 1
        self._bound_all(line)
        if len(line.waiting) - len(line.droppable) > (self._claims_max if line.is_expected else self._queue_max):
            self.dropped += len(line.waiting)
            line.begin_session(self._entropy(_SESSION_BYTES), empty=True)
            # On a stream that is up, what comes next would have a session that the peer does not know.
            line.is_lost, line.is_greeted = True, False
            if line.is_up:
                self.stalled.append(peer)

    def _bound_all(self, line: _PeerQueue) -> None:
        """Many peers that take nothing must not fill our memory together: the fullest gives way. Who has no more than
        its part of the whole is not looked at, so all together have twice that at most."""
        most = _TOTAL_FACTOR * self._queue_bytes
        if line.size * len(self._lines) <= most:
            return
        size = sum(each.size for each in self._lines.values())
        while size > most:
            fullest = max(self._lines.values(), key=lambda each: each.size if each.droppable else 0)
            before = fullest.size
            if not fullest.drop_oldest():
                break
            self.dropped += 1
            size -= before - fullest.size

    def _cargo(self, message: Message) -> bytes:
        """Its bytes; a message that goes to many is encoded once."""
        if self._last is None or self._last[0] is not message:
            self._last = (message, encode(message))
        return self._last[1]

    def _post(self, peer: Address, message: Message) -> None:
        self._frames.append(Frame(peer, encode(message)))


@dataclass(slots=True)
class _PeerQueue:
    """All there is between us and one peer."""

    session: bytes
    """Of our items."""
    their_session: bytes | None = None
    received: int = 0
    """The last of their items that we have, and the last that they know we have."""
    acknowledged: int = 0
    last_sent: int = 0
    """The last of our items that was sent."""
    sent: deque[tuple[int, bytes]] = field(default_factory=deque)
    waiting: dict[int, bytes] = field(default_factory=dict)
    droppable: dict[int, None] = field(default_factory=dict)
    size: int = 0
    """Of those that wait."""
    position: int = 0
    hello_count: int = 0
    is_up: bool = False
    is_greeted: bool = False
    is_expected: bool = False
    is_lost: bool = False
    was_known: bool | None = None
    progress_mark: tuple[int, bytes, int] | None = None
    """How far we were when we began to wait."""

    @property
    def progress(self) -> tuple[int, bytes, int]:
        return self.hello_count, self.session, self.sent[0][0] if self.sent else 0

    def add(self, cargo: bytes, kept: bool) -> None:
        self.position += 1
        self.waiting[self.position] = cargo
        self.size += len(cargo)
        if not kept:
            self.droppable[self.position] = None

    def send_next(self) -> tuple[int, bytes]:
        """The first that waits is under way now."""
        place = next(iter(self.waiting))
        cargo = self._pop(place)
        self.last_sent += 1
        self.sent.append((self.last_sent, cargo))
        return self.last_sent, cargo

    def drop_oldest(self) -> bool:
        """The oldest that may be; False if there is none."""
        if not self.droppable:
            return False
        self._pop(next(iter(self.droppable)))
        return True

    def acknowledge(self, number: int) -> None:
        if number > self.last_sent:
            raise MalformedError("an acknowledgement of what was never sent")
        while self.sent and self.sent[0][0] <= number:
            self.sent.popleft()

    def begin_session(self, session: bytes, *, empty: bool = False) -> None:
        """Another session: what was under way has new numbers; or all of it goes."""
        self.session, self.last_sent = session, 0
        if empty:
            self.sent.clear()
            self.waiting.clear()
            self.droppable.clear()
            self.size = 0
            return
        under_way = [cargo for _, cargo in self.sent]
        self.sent = deque(enumerate(under_way, 1))
        self.last_sent = len(under_way)

    def _pop(self, place: int) -> bytes:
        cargo = self.waiting.pop(place)
        self.droppable.pop(place, None)
        self.size -= len(cargo)
        return cargo


HELLOS_MAX: Final = 4
"""On one stream: the first, and one more for each session that ends in the middle of it."""
ACKNOWLEDGE_BATCH: Final = 64
"""So many items at most are acknowledged at once,"""
ACKNOWLEDGE_US: Final = 100_000
"""or after so long."""
STALL_US: Final = 15_000_000
"""For so long nothing is heard on a stream before it is left."""
_TOTAL_FACTOR: Final = 8
_SESSION_BYTES: Final = 16
_NEVER_DROPPED: Final = (Claim, BringClaim, WithdrawClaim, OverlayOrder, VersionAdopted, CopyRouting, RoutingCopied)
