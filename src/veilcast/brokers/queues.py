"""One reliable queue per peer: messages arrive in order and once, over any number of streams.

A stream can break, and then it is unknown which messages arrived. So messages are numbered items of a session. Each is
kept until the peer acknowledges it, and on the next stream sending resumes at the first unacknowledged item. `Hello`
opens a stream. It names the sender's session and the last item received in the peer's session. A restarted peer knows
no session any more. Then a new session begins, and the machine is told (`restarted`), because that peer has lost all
state.

The number of items in flight is bounded; the others wait. If too many wait, the oldest items with content or keys are
dropped: subscribers request these again, or their publisher sends them again. Single claims are never dropped. If even
the claims are too many (a peer that is offline for long), the whole queue is dropped, and all claims are sent again
when the peer is back.

Acknowledgements are delayed a little and cover many items at once. A stream that lost an item, or on which nothing is
acknowledged, is closed and replaced, even if no end of the stream was noticed.
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
    """Bounded, per peer: `window` items in flight; `queue_max` items and `queue_bytes` bytes that wait, and the same
    number of claims, or `claims_max` for an expected peer, which may need all claims. All waiting items together have
    at most sixteen times `queue_bytes`, whatever the number of peers.

    The peers are those that were passed to `expect` or `peer_up` and not to `forget`. The caller bounds their number.
    `dropped` counts items dropped for lack of space.
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
        """Peers whose stall timer starts when their frames leave: only then is the time known."""
        self._last: tuple[Message, bytes] | None = None
        self.restarted: deque[Address] = deque()
        """Peers that lost, or never had, state about this machine."""
        self.stalled: deque[Address] = deque()
        """Connected peers whose stream makes no progress in one direction. Only a new stream can help."""
        self.dropped = 0

    def __len__(self) -> int:
        """Items that wait or are in flight."""
        return sum(self.queue_lengths())

    def __contains__(self, peer: Address) -> bool:
        return peer in self._lines

    def queue_lengths(self) -> list[int]:
        """Items that wait or are in flight, for each peer."""
        return [len(line.waiting) + len(line.sent) for line in self._lines.values()]

    def is_greeted(self, peer: Address) -> bool:
        """True if the peer is connected and has greeted this machine."""
        return peer in self._lines and self._lines[peer].is_greeted

    def unacknowledged_count(self, peer: Address) -> int:
        """Number of items that the peer has not acknowledged."""
        line = self._lines.get(peer)
        return 0 if line is None else len(line.waiting) + len(line.sent)

    # --- streams

    def is_unacknowledged(self, peer: Address, message: Message) -> bool:
        """True if this message waits for the peer or is in flight to it."""
        line, cargo = self._lines.get(peer), encode(message)
        return line is not None and (cargo in line.waiting.values() or any(cargo == sent for _, sent in line.sent))

    def expect(self, peer: Address) -> None:
        """Keep items for the peer before its first stream."""
        if peer not in self._lines:
            self._lines[peer] = _PeerQueue(self._entropy(_SESSION_BYTES))
        self._lines[peer].is_expected = True

    def has_never_met(self, peer: Address) -> bool:
        """True if the peer's first greeting said that it knew no earlier run of this machine."""
        return peer in self._lines and self._lines[peer].was_known is False

    def peer_up(self, peer: Address) -> None:
        """A driver may report one stream twice, if this machine asked for it twice. The peer greets on it only once."""
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
        """Drop the peer and all its items. If it returns it is a new peer."""
        self._lines.pop(peer, None)
        self._unwatch(peer)

    # --- out

    def put(self, peer: Address, message: Message) -> None:
        """Queue a message for a peer that is expected or was connected. Messages for a forgotten peer are discarded."""
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
        """Send delayed acknowledgements, and give up streams without progress."""
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
        """Return the peer's messages, in order and once. Raises for invalid input."""
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
        """Send items up to the window."""
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
        """Bound the memory of all peers together: the largest queue loses items.

        Claim: all queues together hold at most twice `_TOTAL_FACTOR * queue_bytes`. Reason: a queue no larger than its
        equal part is not examined, so such queues hold at most one total together; the others are cut until the sum is
        within the total.
        """
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
        """Encode a message; a message for many peers is encoded once."""
        if self._last is None or self._last[0] is not message:
            self._last = (message, encode(message))
        return self._last[1]

    def _post(self, peer: Address, message: Message) -> None:
        self._frames.append(Frame(peer, encode(message)))


@dataclass(slots=True)
class _PeerQueue:
    """The state of the session with one peer, in both directions."""

    session: bytes
    """Session of the items to the peer."""
    their_session: bytes | None = None
    received: int = 0
    """Last item received from the peer."""
    acknowledged: int = 0
    """Last item acknowledged to the peer."""
    last_sent: int = 0
    """Number of the last item sent."""
    sent: deque[tuple[int, bytes]] = field(default_factory=deque)
    waiting: dict[int, bytes] = field(default_factory=dict)
    droppable: dict[int, None] = field(default_factory=dict)
    size: int = 0
    """Bytes of the waiting items."""
    position: int = 0
    hello_count: int = 0
    is_up: bool = False
    is_greeted: bool = False
    is_expected: bool = False
    is_lost: bool = False
    was_known: bool | None = None
    progress_mark: tuple[int, bytes, int] | None = None
    """Progress at the start of the stall timer."""

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
        """Move the first waiting item to those in flight."""
        place = next(iter(self.waiting))
        cargo = self._pop(place)
        self.last_sent += 1
        self.sent.append((self.last_sent, cargo))
        return self.last_sent, cargo

    def drop_oldest(self) -> bool:
        """Drop the oldest droppable item; False if there is none."""
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
        """Begin another session. Items in flight get new numbers; with `empty`, all items are dropped."""
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
"""Greetings on one stream: the first, and one for each session that ends during the stream."""
ACKNOWLEDGE_BATCH: Final = 64
"""Most items acknowledged at once."""
ACKNOWLEDGE_US: Final = 100_000
"""Longest delay of an acknowledgement, in microseconds."""
STALL_US: Final = 15_000_000
"""A stream without progress for this time is closed, in microseconds."""
_TOTAL_FACTOR: Final = 8
_SESSION_BYTES: Final = 16
_NEVER_DROPPED: Final = (Claim, BringClaim, WithdrawClaim, OverlayOrder, VersionAdopted, CopyRouting, RoutingCopied)
