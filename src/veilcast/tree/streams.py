"""A node's outbound streams, one for each purpose, and its requests on them until they are answered.

A stream opens when there is a request for it. It opens again after it was lost or gave no answer for a while, with
growing pauses, and unanswered requests are then repeated. If opening a stream takes long, and later streams have been
answered meanwhile, the node gives it up for one on another route: if a relay on its route has died, it may hang for
very long. If all streams are slow, the node keeps them: replacements would make all slower. A request has its own
deadline: when it passes without an answer, the caller is informed. A stream without requests is closed, at once or
after an idle time: a stream that serves a single request reveals nothing about the next.

A purpose is a part of the peer's name (`core.stream_purpose`). Two purposes mean two streams, and the anonymous network
routes each differently. So the callee cannot tell that one node opened both. A request that must not be linked to any
other has a fresh purpose.

`AnswerTimes` estimates how long to wait for an answer, from the answers of all other nodes. A small private anonymous
network answers within a tenth of a second, a busy public one within half a minute. With one fixed time, a node would
either take all others for absent, or notice an absent node too late. So the node waits a few times as long as most
answers take, and long while none has arrived. Of each node only the last answer counts, and "most" excludes the slowest
quarter. So a slow node, or one that answers slowly to make this node wait longer for others, counts once, and has no
effect unless many others are as slow.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Final, TypeAlias

from veilcast.core.bounded import BoundedMap
from veilcast.core.connector import backoff
from veilcast.core.stream_purpose import split_stream_name
from veilcast.core.timers import Timers
from veilcast.errors import StaleError
from veilcast.machine import Address, Connect, Disconnect, Entropy, Event
from veilcast.tree.config import TreeConfig
from veilcast.wire.base import Message
from veilcast.wire.tree import ListingHead, ListingPage, NodeEnrolled, RequestAck, RequestRefused

Answer: TypeAlias = RequestAck | RequestRefused | NodeEnrolled | ListingHead | ListingPage


OnAnswer: TypeAlias = Callable[[Answer | None, int], None]
"""Handles an answer, or None once it is certain that there will be none."""


BuildRequest: TypeAlias = Callable[[int], Message]
"""The request with this number."""


SendMessage: TypeAlias = Callable[[Address, Message], None]


class RequestStreams:
    """Bounded: `streams_max` streams; callers bound the requests on each."""

    def __init__(self, config: TreeConfig, rng: Random, post: SendMessage) -> None:
        self._config, self._rng, self._post = config, rng, post
        self._streams: dict[Address, _Stream] = {}
        self._timers: Timers[Address] = Timers()
        self._events: deque[Event] = deque()
        self._answer_times = AnswerTimes(config.retry_us, SLOW_FACTOR * config.retry_us)
        self._last: deque[int] = deque(maxlen=OVERTAKEN_BY)
        """Opening times of the streams that were answered last."""
        self.answered_us = self.steady_us = 0
        """The time of the last answer from any node, and since when there was no long time without one."""

    def __len__(self) -> int:
        return len(self._streams)

    def __contains__(self, peer: Address) -> bool:
        return peer in self._streams

    @property
    def patience_us(self) -> int:
        """How long to wait for an answer on a stream of its own."""
        return self._answer_times.patience_us

    @property
    def usual_us(self) -> int:
        """The usual time of an answer, including the opening of its stream; 0 while there was none."""
        return self._answer_times.usual_us

    def is_unreachable(self, peer: Address) -> bool:
        """True if the stream to this peer failed to open the last time, and is still wanted."""
        return peer in self._streams and self._streams[peer].failed

    def request(
        self, peer: Address, build: BuildRequest, on_answer: OnAnswer, *, until_us: int, linger_us: int, now: int
    ) -> bool:
        """Send this request, and repeat it until `until_us`. False if there is no capacity for another stream;
        nothing is sent then."""
        stream = self._streams.get(peer)
        if stream is None:
            if len(self._streams) >= self._config.streams_max and not self._close_idle():
                return False
            stream = self._streams[peer] = _Stream(peer, linger_us, number=self._rng.randrange(_NUMBERS), open_us=now)
        stream.number = (stream.number + 1) % _NUMBERS
        pending = stream.requests[stream.number] = _PendingRequest(build, on_answer, until_us)
        if stream.up:
            self._send(stream, stream.number, pending, now)
        self._advance(stream, now)
        return True

    def handle_answer(self, peer: Address, answer: Answer, now: int) -> None:
        """An answer on one of this node's streams; `StaleError` if it was not requested, or was answered before."""
        stream = self._streams.get(peer)
        pending = None if stream is None else stream.requests.pop(answer.number, None)
        if stream is None or pending is None:
            raise StaleError("an answer without an open request")
        if stream.opened_us is not None:
            self._record_time(stream, now)
            self._last.append(stream.opened_us)
        stream.idle_us, stream.attempts, stream.opened_us = now + stream.linger_us, 0, None
        if now > self.answered_us + self._config.retry_us:
            self.steady_us = now
        self.answered_us = now
        try:
            pending.on_answer(answer, now)
        finally:
            self._advance(stream, now)

    def peer_up(self, peer: Address, now: int) -> None:
        stream = self._streams.get(peer)
        if stream is None:
            self._events.append(Disconnect(peer))  # No longer needed.
            return
        if not stream.up:
            stream.up, stream.failed, stream.idle_us = True, False, now + stream.linger_us
            for number, pending in list(stream.requests.items()):
                self._send(stream, number, pending, now)
        self._advance(stream, now)

    def peer_lost(self, peer: Address, now: int) -> None:
        stream = self._streams.get(peer)
        if stream is None:
            return
        if stream.up:
            self._lose(stream, now)
        elif stream.opened_us is not None:
            self._events.append(Disconnect(peer))  # This machine, and not the driver, decides when to open it again.
            stream.failed = True
            self._pause(stream, now)
        self._advance(stream, now)

    def next_us(self) -> int | None:
        return self._timers.next_us()

    def handle(self, now: int) -> None:
        for peer in self._timers.pop_due(now):
            if (stream := self._streams.get(peer)) is not None:
                self._advance(stream, now)

    def next_event(self) -> Event | None:
        return self._events.popleft() if self._events else None

    def _advance(self, stream: _Stream, now: int) -> None:
        """Do what is due on this stream, and set its timer."""
        expired = [number for number, pending in stream.requests.items() if pending.until_us <= now]
        for number in expired:
            if (pending := stream.requests.pop(number, None)) is not None:
                pending.on_answer(None, now)
        if self._streams.get(stream.peer) is not stream:
            return
        if stream.up and any(pending.answer_us <= now for pending in stream.requests.values()):
            # The stream hangs. Its requests are repeated on another.
            self._events.append(Disconnect(stream.peer))
            self._lose(stream, now)
        if not stream.requests and (not stream.up or stream.idle_us <= now):
            self._close(stream)
            return
        if not stream.up and stream.open_us <= now:
            self._open(stream, now)
        self._timers.set(stream.peer, stream.due_us)

    def _send(self, stream: _Stream, number: int, pending: _PendingRequest, now: int) -> None:
        pending.answer_us = now + self._config.retry_us
        self._post(stream.peer, pending.build(number))

    def _open(self, stream: _Stream, now: int) -> None:
        stream.open_us = now + self.patience_us // 2
        if stream.opened_us is not None:
            self._record_time(stream, now)  # The answer would have taken at least this long.
            if not self._is_overtaken(stream):
                return
            self._events.append(Disconnect(stream.peer))
        self._events.append(Connect(stream.peer))
        stream.attempts += 1
        stream.opened_us = now

    def _is_overtaken(self, stream: _Stream) -> bool:
        return len(self._last) == OVERTAKEN_BY and stream.opened_us is not None and min(self._last) > stream.opened_us

    def _record_time(self, stream: _Stream, now: int) -> None:
        if stream.opened_us is not None:
            self._answer_times.record(split_stream_name(stream.peer)[1], now - stream.opened_us)

    def _lose(self, stream: _Stream, now: int) -> None:
        if stream.up:
            stream.up = False
            self._pause(stream, now)

    def _pause(self, stream: _Stream, now: int) -> None:
        stream.opened_us = None
        stream.open_us = now + backoff(
            self._rng, self._config.connect_us, min(max(0, stream.attempts - 1), PAUSE_DOUBLINGS_MAX)
        )

    def _close(self, stream: _Stream) -> None:
        del self._streams[stream.peer]
        self._timers.cancel(stream.peer)
        self._events.append(Disconnect(stream.peer))

    def _close_idle(self) -> bool:
        idle = (stream for stream in self._streams.values() if not stream.requests)
        stream = min(idle, key=lambda each: each.idle_us, default=None)
        if stream is not None:
            self._close(stream)
        return stream is not None


class AnswerTimes:
    """Between `least_us` and `most_us`. Bounded: the last answer of each of `ANSWERS_KEPT` nodes."""

    def __init__(self, least_us: int, most_us: int) -> None:
        self._least_us, self._most_us = least_us, most_us
        self._took_us: BoundedMap[Address, int] = BoundedMap(ANSWERS_KEPT)

    def record(self, peer: Address, took_us: int) -> None:
        """Record an answer of this node, and the time it took."""
        self._took_us.renew(peer, took_us)

    @property
    def usual_us(self) -> int:
        """The time within which three quarters of the answers arrive; 0 before the first answer."""
        took = sorted(self._took_us.values())
        return took[(len(took) - 1) * 3 // 4] if took else 0

    @property
    def patience_us(self) -> int:
        if not self._took_us:
            return self._most_us
        return min(max(self._least_us, PATIENCE_FACTOR * self.usual_us), self._most_us)


def fresh_purpose(purpose: str, entropy: Entropy) -> str:
    """A purpose that is used once."""
    return f"{purpose}-{entropy(_FRESH).hex()}"


@dataclass(slots=True, eq=False)
class _PendingRequest:
    build: BuildRequest
    on_answer: OnAnswer
    until_us: int
    answer_us: int = 0
    """Deadline of the answer on the current stream; counts while the stream is up."""


@dataclass(slots=True, eq=False)
class _Stream:
    peer: Address
    linger_us: int
    number: int
    """Number of the last request. An earlier stream of this name may have used others, so the first number is
    random."""
    open_us: int
    """When the stream is opened next, while it is down."""
    opened_us: int | None = None
    """When the stream was opened, while it is opening or has had no answer yet."""
    up: bool = False
    failed: bool = False
    """True if the last attempt to open it failed."""
    attempts: int = 0
    idle_us: int = 0
    requests: dict[int, _PendingRequest] = field(default_factory=dict)

    @property
    def due_us(self) -> int:
        ends = [pending.until_us for pending in self.requests.values()]
        if not self.up:
            return min([*ends, self.open_us])
        if not ends:
            return self.idle_us
        return min(*ends, *(pending.answer_us for pending in self.requests.values()))


DIRECTORY_STREAM: Final = "directory"
"""The stream for enrolments, on which a node gives its name."""
FETCH_STREAM: Final = "fetch"
"""The stream for downloads of the listing, fresh each time: a directory that recognised the node could show it a
listing of its own.
"""
HOP_STREAM: Final = "hop"
"""One stream to each parent, for all forwarded messages."""
PUBLISH_STREAM: Final = "publish"
INSTALL_STREAM: Final = "install"
PROBE_STREAM: Final = "probe"
"""These three are fresh each time."""
_FRESH: Final = 16
SLOW_FACTOR: Final = 4
"""How many times longer to wait for answers where the network is slow."""
OVERTAKEN_BY: Final = 3
"""A stream is overtaken when this many later ones have been answered."""
PAUSE_DOUBLINGS_MAX: Final = 2
"""How often a pause is doubled: a node that comes back should be found soon."""
ANSWERS_KEPT: Final = 64
PATIENCE_FACTOR: Final = 4
"""Time to wait, in multiples of the usual time: a network is not equally fast with every node."""
_NUMBERS: Final = 1 << 32
