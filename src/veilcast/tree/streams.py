"""Streams: a node's ways to others, each for one purpose, and what it asks for on them until it is answered.

A stream is called for when there is something to ask on it, and again after it was lost or gave no answer for a while,
with growing pauses between; whatever was not answered is then asked anew. A call that takes long, and has been
overtaken by others, is given up for one that goes another way: if somebody on its way has died it may hang for very
long. Where all calls are slow none is given up: to make others in their place would make all slower. A request has an
end of its own: when that comes without an answer, who asked is told so. A stream without requests is closed, at once or
when it was idle for long enough: one that serves a single request tells nothing of the next.


Pace: how long to wait for somebody's answer, by how long the answers of all others took.

An anonymous network answers within a tenth of a second when it is small and one's own, and within half a minute when it
is the world's and busy. Who waits the same in both either finds everybody away, or finds out too late that somebody is.
So one waits for a few times what most answers take, and for long while none has come.

What counts of each node is its last answer, and what most take is what all but the slowest quarter do. So a node that
is slow, or answers slowly for us to wait longer for others too, counts once, and nothing as long as few are with it.


Purposes: what a stream is for, as a part of its peer's name.

Pure. Who dials two purposes dials two streams (`parts.ways`), and the anonymous network takes each another way. So
whoever is reached for two cannot tell that it was by one node; what must not be linked to anything else has a fresh
purpose."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Final, TypeAlias

from veilcast.core.bounded import remember
from veilcast.core.connector import backoff
from veilcast.core.stream_purpose import split_stream_name
from veilcast.core.timers import Timers
from veilcast.errors import StaleError
from veilcast.machine import Address, Connect, Disconnect, Entropy, Event
from veilcast.tree.config import TreeConfig
from veilcast.wire.mesh import Message
from veilcast.wire.tree import ListingHead, ListingPage, NodeEnrolled, RequestAck, RequestRefused


class AnswerTimes:
    """Between `least_us` and `most_us`. Bounded: the last answer of each of `ANSWERS_KEPT` nodes."""

    def __init__(self, least_us: int, most_us: int) -> None:
        self._least_us, self._most_us = least_us, most_us
        self._took_us: dict[Address, int] = {}

    def record(self, whose: Address, took_us: int) -> None:
        """An answer of this node has come, after so long."""
        remember(self._took_us, whose, took_us, ANSWERS_KEPT)

    @property
    def usual_us(self) -> int:
        """What most answers take at most; nothing while none has come."""
        took = sorted(self._took_us.values())
        return took[(len(took) - 1) * 3 // 4] if took else 0

    @property
    def patience_us(self) -> int:
        if not self._took_us:
            return self._most_us
        return min(max(self._least_us, PATIENCE_FACTOR * self.usual_us), self._most_us)


ANSWERS_KEPT: Final = 64
PATIENCE_FACTOR: Final = 4
"""For so many times what most answers take one more is waited for: a network is not as fast with everybody."""


def fresh_purpose(purpose: str, entropy: Entropy) -> str:
    """A purpose that serves once."""
    return f"{purpose}-{entropy(_FRESH).hex()}"


DIRECTORY_STREAM: Final = "directory"
"""To be listed: one stream, on which a node says who it is."""

FETCH_STREAM: Final = "fetch"
"""To get the listing, and made fresh each time: whoever could tell who asks could show it a listing of its own."""

HOP_STREAM: Final = "hop"
"""One stream to each parent, for all that climbs there."""

PUBLISH_STREAM: Final = "publish"
INSTALL_STREAM: Final = "install"
PROBE_STREAM: Final = "probe"
"""These three are made fresh each time."""

_FRESH: Final = 16

Answer: TypeAlias = RequestAck | RequestRefused | NodeEnrolled | ListingHead | ListingPage

OnAnswer: TypeAlias = Callable[[Answer | None, int], None]
"""What is done with an answer, or when it is known that there will be none."""

BuildRequest: TypeAlias = Callable[[int], Message]
"""The request under this number."""

SendMessage: TypeAlias = Callable[[Address, Message], None]


class RequestStreams:
    """Bounded: `streams_max` streams; how much is asked on each is for those to bound who ask."""

    def __init__(self, config: TreeConfig, rng: Random, post: SendMessage) -> None:
        self._config, self._rng, self._post = config, rng, post
        self._streams: dict[Address, _Stream] = {}
        self._alarms: Timers[Address] = Timers()
        self._events: deque[Event] = deque()
        self._pace = AnswerTimes(config.retry_us, SLOW_FACTOR * config.retry_us)
        self._last: deque[int] = deque(maxlen=OVERTAKEN_BY)
        """When the calls were made that were answered last."""
        self.answered_us = self.steady_us = 0
        """When anybody answered anything, and since when there was no long time without an answer."""

    def __len__(self) -> int:
        return len(self._streams)

    def __contains__(self, peer: Address) -> bool:
        return peer in self._streams

    @property
    def patience_us(self) -> int:
        """How long to try for an answer on a stream of its own."""
        return self._pace.patience_us

    @property
    def usual_us(self) -> int:
        """What an answer mostly takes, with the call before it; nothing while there was none."""
        return self._pace.usual_us

    def is_unreachable(self, peer: Address) -> bool:
        """Whether it is called, and did not answer the last time."""
        return peer in self._streams and self._streams[peer].vain

    def request(
        self, peer: Address, build: BuildRequest, then: OnAnswer, *, until_us: int, linger_us: int, now: int
    ) -> bool:
        """Ask for this until then; False if there is no room for another stream, and nothing is asked."""
        stream = self._streams.get(peer)
        if stream is None:
            if len(self._streams) >= self._config.streams_max and not self._close_idle():
                return False
            stream = self._streams[peer] = _Stream(peer, linger_us, number=self._rng.randrange(_NUMBERS), call_us=now)
        stream.number = (stream.number + 1) % _NUMBERS
        errand = stream.errands[stream.number] = _Errand(build, then, until_us)
        if stream.up:
            self._send(stream, stream.number, errand, now)
        self._move(stream, now)
        return True

    def handle_answer(self, peer: Address, answer: Answer, now: int) -> None:
        """An answer has come on one of our streams; `StaleError` if it was not asked for, or answered before."""
        stream = self._streams.get(peer)
        errand = None if stream is None else stream.errands.pop(answer.number, None)
        if stream is None or errand is None:
            raise StaleError("an answer that nobody waits for")
        if stream.called_us is not None:
            self._note(stream, now)
            self._last.append(stream.called_us)
        stream.idle_us, stream.calls, stream.called_us = now + stream.linger_us, 0, None
        if now > self.answered_us + self._config.retry_us:
            self.steady_us = now
        self.answered_us = now
        try:
            errand.then(answer, now)
        finally:
            self._move(stream, now)

    def peer_up(self, peer: Address, now: int) -> None:
        stream = self._streams.get(peer)
        if stream is None:
            self._events.append(Disconnect(peer))  # It is not wanted any more.
            return
        if not stream.up:
            stream.up, stream.vain, stream.idle_us = True, False, now + stream.linger_us
            for number, errand in list(stream.errands.items()):
                self._send(stream, number, errand, now)
        self._move(stream, now)

    def peer_lost(self, peer: Address, now: int) -> None:
        stream = self._streams.get(peer)
        if stream is None:
            return
        if stream.up:
            self._down(stream, now)
        elif stream.called_us is not None:
            self._events.append(Disconnect(peer))  # When it is called again is our affair.
            stream.vain = True
            self._pause(stream, now)
        self._move(stream, now)

    def next_us(self) -> int | None:
        return self._alarms.next_us()

    def handle(self, now: int) -> None:
        for peer in self._alarms.pop_due(now):
            if (stream := self._streams.get(peer)) is not None:
                self._move(stream, now)

    def next_event(self) -> Event | None:
        return self._events.popleft() if self._events else None

    def _move(self, stream: _Stream, now: int) -> None:
        """Do what is due on this stream, and see to it that we are woken for the next."""
        over = [number for number, errand in stream.errands.items() if errand.until_us <= now]
        for number in over:
            if (errand := stream.errands.pop(number, None)) is not None:
                errand.then(None, now)
        if self._streams.get(stream.peer) is not stream:
            return
        if stream.up and any(errand.answer_us <= now for errand in stream.errands.values()):
            # It hangs. What was asked on it is asked on another.
            self._events.append(Disconnect(stream.peer))
            self._down(stream, now)
        if not stream.errands and (not stream.up or stream.idle_us <= now):
            self._close(stream)
            return
        if not stream.up and stream.call_us <= now:
            self._call(stream, now)
        self._alarms.set(stream.peer, stream.due_us)

    def _send(self, stream: _Stream, number: int, errand: _Errand, now: int) -> None:
        errand.answer_us = now + self._config.retry_us
        self._post(stream.peer, errand.build(number))

    def _call(self, stream: _Stream, now: int) -> None:
        stream.call_us = now + self.patience_us // 2
        if stream.called_us is not None:
            self._note(stream, now)  # It would have taken longer still.
            if not self._is_overtaken(stream):
                return
            self._events.append(Disconnect(stream.peer))
        self._events.append(Connect(stream.peer))
        stream.calls += 1
        stream.called_us = now

    def _is_overtaken(self, stream: _Stream) -> bool:
        return len(self._last) == OVERTAKEN_BY and stream.called_us is not None and min(self._last) > stream.called_us

    def _note(self, stream: _Stream, now: int) -> None:
        if stream.called_us is not None:
            self._pace.record(split_stream_name(stream.peer)[1], now - stream.called_us)

    def _down(self, stream: _Stream, now: int) -> None:
        if stream.up:
            stream.up = False
            self._pause(stream, now)

    def _pause(self, stream: _Stream, now: int) -> None:
        stream.called_us = None
        stream.call_us = now + backoff(
            self._rng, self._config.connect_us, min(max(0, stream.calls - 1), PAUSE_DOUBLINGS_MAX)
        )

    def _close(self, stream: _Stream) -> None:
        del self._streams[stream.peer]
        self._alarms.cancel(stream.peer)
        self._events.append(Disconnect(stream.peer))

    def _close_idle(self) -> bool:
        idle = (stream for stream in self._streams.values() if not stream.errands)
        stream = min(idle, key=lambda each: each.idle_us, default=None)
        if stream is not None:
            self._close(stream)
        return stream is not None


@dataclass(slots=True, eq=False)
class _Errand:
    build: BuildRequest
    then: OnAnswer
    until_us: int
    answer_us: int = 0
    """When an answer is waited for no longer; counts while the stream is up."""


@dataclass(slots=True, eq=False)
class _Stream:
    peer: Address
    linger_us: int
    number: int
    """Of the last request. Another stream of this name may have had others: the first is drawn."""
    call_us: int
    """When it is called for next, while it is down."""
    called_us: int | None = None
    """When the call was made that is under way, or has had no answer yet."""
    up: bool = False
    vain: bool = False
    """Whether it failed to be up when it was called last."""
    calls: int = 0
    idle_us: int = 0
    errands: dict[int, _Errand] = field(default_factory=dict)

    @property
    def due_us(self) -> int:
        ends = [errand.until_us for errand in self.errands.values()]
        if not self.up:
            return min([*ends, self.call_us])
        if not ends:
            return self.idle_us
        return min(*ends, *(errand.answer_us for errand in self.errands.values()))


SLOW_FACTOR: Final = 4
"""So many times longer is waited for answers where the network is slow."""
OVERTAKEN_BY: Final = 3
"""By so many that began later, and have been answered, a call is overtaken."""
PAUSE_DOUBLINGS_MAX: Final = 2
"""So often a pause is doubled: whoever comes back is to be found soon."""
_NUMBERS: Final = 1 << 32
