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
from veilcast.wire.base import Message
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
        self._ack_batch = min(ACKNOWLEDGE_BATCH, max(1, window // 4))
        self._queues: dict[Address, _PeerQueue] = {}
        self._frames: deque[Frame] = deque()
        self._ack_timers: Timers[Address] = Timers()
        self._stall_timers: Timers[Address] = Timers()
        self._awaiting_frames: dict[Address, None] = {}
        """Peers whose stall timer starts when their frames leave: only then is the time known."""
        self._last_encoded: tuple[Message, bytes] | None = None
        self.restarted: deque[Address] = deque()
        """Peers that lost, or never had, state about this machine."""
        self.stalled: deque[Address] = deque()
        """Connected peers whose stream makes no progress in one direction. Only a new stream can help."""
        self.dropped = 0

    def __len__(self) -> int:
        """Items that wait or are in flight."""
        return sum(self.queue_lengths())

    def __contains__(self, peer: Address) -> bool:
        return peer in self._queues

    def queue_lengths(self) -> list[int]:
        """Items that wait or are in flight, for each peer."""
        return [len(queue.waiting) + len(queue.sent) for queue in self._queues.values()]

    def is_greeted(self, peer: Address) -> bool:
        """True if the peer is connected and has greeted this machine."""
        return peer in self._queues and self._queues[peer].is_greeted

    def unacknowledged_count(self, peer: Address) -> int:
        """Number of items that the peer has not acknowledged."""
        queue = self._queues.get(peer)
        return 0 if queue is None else len(queue.waiting) + len(queue.sent)

    # --- streams

    def is_unacknowledged(self, peer: Address, message: Message) -> bool:
        """True if this message waits for the peer or is in flight to it."""
        queue, cargo = self._queues.get(peer), encode(message)
        return queue is not None and (cargo in queue.waiting.values() or any(cargo == sent for _, sent in queue.sent))

    def expect(self, peer: Address) -> None:
        """Keep items for the peer before its first stream."""
        if peer not in self._queues:
            self._queues[peer] = _PeerQueue(self._entropy(_SESSION_BYTES))
        self._queues[peer].is_expected = True

    def has_never_met(self, peer: Address) -> bool:
        """True if the peer's first greeting said that it knew no earlier run of this machine."""
        return peer in self._queues and self._queues[peer].was_known is False

    def peer_up(self, peer: Address) -> None:
        """A driver may report one stream twice, if this machine asked for it twice. The peer greets on it only once."""
        queue = self._queues.setdefault(peer, _PeerQueue(self._entropy(_SESSION_BYTES)))
        if not queue.is_greeted:
            queue.is_up, queue.hello_count = True, 0
        self._greet(peer, queue)
        self._start_watch(peer)

    def peer_lost(self, peer: Address) -> None:
        queue = self._queues.get(peer)
        if queue is not None:
            queue.is_up = queue.is_greeted = False
            self._stop_watch(peer)

    def forget(self, peer: Address) -> None:
        """Drop the peer and all its items. If it returns it is a new peer."""
        self._queues.pop(peer, None)
        self._stop_watch(peer)

    # --- output

    def put(self, peer: Address, message: Message) -> None:
        """Queue a message for a peer that is expected or was connected. Messages for a forgotten peer are discarded."""
        queue = self._queues.get(peer)
        if queue is None:
            return
        is_kept = isinstance(message, _NEVER_DROPPED)
        if queue.is_lost and is_kept:
            return  # The peer gets all claims when it is back.
        queue.add(self._encode_cached(message), is_kept)
        self._enforce_bounds(peer, queue)
        self._send(peer, queue)

    def frames(self, now: int, limit: int) -> list[Frame]:
        for peer in self._awaiting_frames:
            self._set_stall_timer(peer, self._queues[peer], now)
        self._awaiting_frames.clear()
        return [self._frames.popleft() for _ in range(min(limit, len(self._frames)))]

    def next_us(self) -> int | None:
        return earliest(self._ack_timers.next_us(), self._stall_timers.next_us())

    def handle(self, now: int) -> None:
        """Send delayed acknowledgements, and give up streams without progress."""
        for peer in self._ack_timers.pop_due(now):
            self._acknowledge(peer, self._queues[peer])
        for peer in self._stall_timers.pop_due(now):
            queue = self._queues[peer]
            if queue.is_greeted and not queue.sent:
                continue
            if queue.progress_mark == queue.progress:
                self.stalled.append(peer)
                continue
            self._set_stall_timer(peer, queue, now)

    # --- input

    def receive(self, data: bytes, peer: Address, now: int) -> Message | None:
        """Return the peer's messages, in order and once. Raises for invalid input."""
        queue = self._queues.get(peer)
        if queue is None or not queue.is_up:
            raise StaleError("a peer that is not connected")
        message = decode(data)
        match message:
            case Hello():
                self._on_hello(message, peer, queue)
            case ItemAck():
                queue.acknowledge(message.number)
                self._send(peer, queue)
            case SessionItem():
                return self._take_item(message, peer, queue, now)
            case _:
                raise MalformedError("not a message of a session")
        return None

    # --- internals

    def _greet(self, peer: Address, queue: _PeerQueue) -> None:
        self._queue_frame(peer, Hello(queue.session, queue.their_session, queue.received))

    def _on_hello(self, hello: Hello, peer: Address, queue: _PeerQueue) -> None:
        queue.hello_count += 1
        if queue.hello_count > HELLOS_MAX:
            raise ExcessError("more greetings than a stream needs")
        if queue.was_known is None:
            queue.was_known = hello.theirs is not None
        if hello.session != queue.their_session:
            queue.their_session, queue.received, queue.acknowledged = hello.session, 0, 0
        knows_session = hello.theirs == queue.session
        if knows_session:
            queue.acknowledge(hello.heard)
        elif queue.last_sent:  # The peer lacks the items before the first unacknowledged one.
            queue.begin_session(self._entropy(_SESSION_BYTES))
            self._greet(peer, queue)
        if queue.is_lost or not knows_session:
            self.restarted.append(peer)
        queue.is_greeted, queue.is_lost = True, False
        for number, cargo in queue.sent:
            self._queue_frame(peer, SessionItem(number, cargo))
        self._send(peer, queue)

    def _take_item(self, item: SessionItem, peer: Address, queue: _PeerQueue, now: int) -> Message | None:
        if queue.their_session is None or not queue.hello_count:
            raise MalformedError("an item before a greeting")
        if item.number > queue.received + 1:
            if peer not in self.stalled:
                self.stalled.append(peer)
            raise MalformedError("an item out of its order")
        if item.number <= queue.received:
            return None
        queue.received += 1
        if queue.received - queue.acknowledged >= self._ack_batch:
            self._acknowledge(peer, queue)
        elif peer not in self._ack_timers:
            self._ack_timers.set(peer, now + ACKNOWLEDGE_US)
        return decode(item.cargo)

    def _send(self, peer: Address, queue: _PeerQueue) -> None:
        """Send items up to the window."""
        if not queue.is_greeted:
            return
        while queue.waiting and len(queue.sent) < self._window:
            self._queue_frame(peer, SessionItem(*queue.send_next()))
        if queue.sent:
            self._start_watch(peer)

    def _start_watch(self, peer: Address) -> None:
        if peer not in self._stall_timers:
            self._awaiting_frames[peer] = None

    def _set_stall_timer(self, peer: Address, queue: _PeerQueue, now: int) -> None:
        queue.progress_mark = queue.progress
        self._stall_timers.set(peer, now + STALL_US)

    def _stop_watch(self, peer: Address) -> None:
        self._ack_timers.cancel(peer)
        self._stall_timers.cancel(peer)
        self._awaiting_frames.pop(peer, None)

    def _acknowledge(self, peer: Address, queue: _PeerQueue) -> None:
        self._ack_timers.cancel(peer)
        queue.acknowledged = queue.received
        self._queue_frame(peer, ItemAck(queue.received))

    def _enforce_bounds(self, peer: Address, queue: _PeerQueue) -> None:
        while len(queue.droppable) > self._queue_max or queue.size > self._queue_bytes:
            if not queue.drop_oldest():
                break
            self.dropped += 1
        self._enforce_total(queue)
        if len(queue.waiting) - len(queue.droppable) > (self._claims_max if queue.is_expected else self._queue_max):
            self.dropped += len(queue.waiting)
            queue.begin_session(self._entropy(_SESSION_BYTES), empty=True)
            # On an open stream, the next items would belong to a session that the peer does not know.
            queue.is_lost, queue.is_greeted = True, False
            if queue.is_up:
                self.stalled.append(peer)

    def _enforce_total(self, queue: _PeerQueue) -> None:
        """Bound the memory of all peers together: the largest queue loses items.

        Property: all queues together hold at most twice `_TOTAL_FACTOR * queue_bytes`.
        Reason: a queue no larger than its equal part is not examined, so such queues together hold at most that number.
        The others are cut until the sum is within it.
        """
        total_max = _TOTAL_FACTOR * self._queue_bytes
        if queue.size * len(self._queues) <= total_max:
            return
        size = sum(each.size for each in self._queues.values())
        while size > total_max:
            fullest = max(self._queues.values(), key=lambda each: each.size if each.droppable else 0)
            before = fullest.size
            if not fullest.drop_oldest():
                break
            self.dropped += 1
            size -= before - fullest.size

    def _encode_cached(self, message: Message) -> bytes:
        """Encode a message; a message for many peers is encoded once."""
        if self._last_encoded is None or self._last_encoded[0] is not message:
            self._last_encoded = (message, encode(message))
        return self._last_encoded[1]

    def _queue_frame(self, peer: Address, message: Message) -> None:
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

    def add(self, cargo: bytes, is_kept: bool) -> None:
        self.position += 1
        self.waiting[self.position] = cargo
        self.size += len(cargo)
        if not is_kept:
            self.droppable[self.position] = None

    def send_next(self) -> tuple[int, bytes]:
        """Move the first waiting item to those in flight."""
        position = next(iter(self.waiting))
        cargo = self._pop(position)
        self.last_sent += 1
        self.sent.append((self.last_sent, cargo))
        return self.last_sent, cargo

    def drop_oldest(self) -> bool:
        """Drop the oldest droppable item; False without one."""
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

    def _pop(self, position: int) -> bytes:
        cargo = self.waiting.pop(position)
        self.droppable.pop(position, None)
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
