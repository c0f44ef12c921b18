"""A client's way to one proxy: its stream, its enrolment there, and its requests until they are answered.

A request is repeated until it is done: after a while without an answer, and when the stream is up again. It is built
anew each time, under the key of the enrolment and with the keys of the epoch that hold then. Proxy and server do
nothing twice, so it does no harm that an answer was only slow. A refusal is taken as "not now": the owner is told what
stands in the way (`standing`), and decides whether to go on.

One refusal is more: whatever rests on what is unknown over there must be told anew. Most requests rest on the
enrolment; one that rests on something else says what to do then.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Final, TypeAlias

from veilcast.core.connector import DOUBLINGS_MAX, Connector, backoff
from veilcast.core.durable_records import WhenDurable
from veilcast.core.timers import Timers, earliest
from veilcast.crypto.group import Scalar
from veilcast.errors import ForgedError, LocalError
from veilcast.machine import Address, Delay, Entropy, Event
from veilcast.relay.config import RelayClientConfig
from veilcast.relay.enrolment import EnrolmentStart, ServerPublic, begin_enrolment
from veilcast.relay.profile import ClientProfile
from veilcast.wire.mesh import Message
from veilcast.wire.relay import Release, ReplyCode, RequestReply

BuildRequest: TypeAlias = Callable[[int, Scalar, int], Message]
"""A request of this number, under this key, as it is now; `LocalError` if it cannot be made at this time."""

SendMessage: TypeAlias = Callable[[Address, Message, int], None]


@dataclass(slots=True)
class _Request:
    build: BuildRequest
    done: WhenDurable
    unknown: WhenDurable | None
    proof: bytes | None
    given_up: bool = False
    """It was last sent as a release, which nobody proves: that is no loss."""
    tries: int = 0
    sent_us: int = 0
    """When it was sent first."""
    last_us: int = 0
    """When it was last sent, or refused."""
    owed_us: int | None = None
    """Since when an answer is owed, without the times when the stream was down; None if no answer is owed now."""
    owed_before_us: int = 0
    """How long an answer was owed on earlier streams: a proxy that cuts its streams does not hide a silent server."""


class ProxyConnection:
    """Bounded: `flight_max` requests are under way; how many wait is for those to bound who ask."""

    def __init__(
        self,
        config: RelayClientConfig,
        part: ClientProfile,
        server: ServerPublic,
        proxy: Address,
        post: SendMessage,
        rng: Random,
        entropy: Entropy,
        now: int,
    ) -> None:
        self._config, self._part, self._server, self.proxy = config, part, server, proxy
        self._post, self._rng, self._entropy = post, rng, entropy
        self.key: Scalar | None = None
        """k_u, while we are enrolled."""
        self.refused_requests: Counter[ReplyCode] = Counter()
        """The requests that were last refused, by reason."""
        self._refusals: dict[int, ReplyCode] = {}
        self._caller = Connector(proxy, config.connect_us, rng, now)
        # Numbers of another life may still be answered: this one begins anywhere.
        self._number = rng.randrange(_NUMBERS)
        self._enrolling: tuple[int, EnrolmentStart, int] | None = None
        self._forgotten = 0
        """How often the proxy did not know us, since something was done for us."""
        self._answers = _Answers(config.retry_us << DOUBLINGS_MAX)
        self._enrol_owed_us: int | None = None
        """As `_Request.owed_us`, of the enrolment."""
        self._enrol_owed_before_us = 0
        self._flying: dict[int, _Request] = {}
        self._waiting: dict[int, _Request] = {}
        self._alarms: Timers[int] = Timers()

    def __len__(self) -> int:
        return len(self._flying) + len(self._waiting)

    def request(
        self,
        now: int,
        build: BuildRequest,
        done: WhenDurable,
        unknown: WhenDurable | None = None,
        *,
        proof: bytes | None = None,
    ) -> int:
        """Ask for something until it is done; the number by which it can be taken back.

        With a proof it is done when that comes with the answer: the proxy cannot say so in the server's place.
        """
        number = self._next()
        self._waiting[number] = _Request(build, done, unknown, proof)
        self._fill(now)
        return number

    def is_unsent(self, number: int) -> bool:
        return number in self._waiting

    def silent_us(self, now: int) -> int:
        """How long the relay has owed an answer, if longer than answers ever take while the proxy is up; else 0.

        The proxy hands a request on and answers nothing in the server's place. So a proxy that is up and brings no
        answer has a server that is down, or keeps the requests to itself. Each request counts by itself: answers to
        others, and the word that this client is unknown, which a proxy can give by itself, change nothing.
        """
        owed = [self._enrol_owed_us, *(request.owed_us for request in self._flying.values())]
        silent_us = max((now - since_us for since_us in owed if since_us is not None), default=0)
        usual_us = max(_SILENT_RETRIES * self._config.retry_us, 2 * self._answers.patience_us)
        return silent_us if silent_us >= usual_us else 0

    def delay(self, now: int) -> Delay:
        """Why a request that is not done waits, and about until when."""
        if not self._caller.up:
            return Delay("no stream to the relay's proxy is up")
        if self.silent_us(now):
            return Delay("the relay does not answer")
        answer_us = max(self._answers.patience_us, _ANSWER_US)
        if self.key is None:
            return Delay("the relay enrols this member first", now + 2 * answer_us)
        if self._refusals:
            return Delay("the relay has refused it for now; it is sent again")
        rounds = 1 + len(self._waiting) // self._config.flight_max
        return Delay("the relay's server is to confirm it", now + rounds * answer_us)

    def cancel(self, number: int, now: int) -> None:
        """Ask for it no more."""
        self._clear(number)
        self._alarms.cancel(number)
        self._waiting.pop(number, None)
        if self._flying.pop(number, None) is not None:
            self._fill(now)

    def send_if_up(self, message: Message, now: int) -> None:
        """Say something that is worth saying only while the proxy listens."""
        if self._caller.up and self.key is not None:
            self._post(self.proxy, message, now)

    def peer_up(self, now: int) -> None:
        self._caller.peer_up()
        if self.key is None:
            self._enrol(now)
        for number in list(self._flying):
            self._send(number, now)
        self._fill(now)

    def peer_lost(self, now: int) -> None:
        self._caller.peer_lost(now)
        if self._enrol_owed_us is not None:
            self._enrol_owed_before_us = now - self._enrol_owed_us
            self._enrol_owed_us = None
        for request in self._flying.values():
            if request.owed_us is not None:
                request.owed_before_us = now - request.owed_us
                request.owed_us = None

    def handle_reply(self, reply: RequestReply, now: int) -> None:
        code = ReplyCode(reply.code)
        if self._enrolling is not None and reply.number == self._enrolling[0]:
            self._enrol_owed_us, self._enrol_owed_before_us = None, 0
            self._enrolled(code, now)
            return
        request = self._flying.get(reply.number)
        if request is None:
            return
        if code is ReplyCode.DONE and request.proof not in (None, reply.proof) and not request.given_up:
            raise ForgedError("a proxy says that something is done, and not the server")
        if code is ReplyCode.DONE:
            self._forgotten = 0
        self._answers.note(request, now)
        if code is ReplyCode.DONE or (code is ReplyCode.UNKNOWN and request.unknown is not None):
            del self._flying[reply.number]
            self._alarms.cancel(reply.number)
            self._clear(reply.number)
            if code is ReplyCode.DONE:
                self._hasten_older(request, now)
            self._fill(now)
            then = request.done if code is ReplyCode.DONE else request.unknown
            if then is not None:
                then(now)
        elif code is ReplyCode.UNKNOWN:
            self._unknown(now)
        else:
            self._refused(reply.number, code)
            request.owed_us, request.owed_before_us = None, 0
            self._again(reply.number, request, now)

    def next_us(self) -> int | None:
        return earliest(self._caller.next_us, self._alarms.next_us())

    def next_event(self) -> Event | None:
        return self._caller.next_event()

    def handle(self, now: int) -> None:
        self._caller.handle(now)
        for number in self._alarms.pop_due(now):
            if number == _ENROL:
                self._enrol(now)
            else:
                self._send(number, now)

    def _unknown(self, now: int) -> None:
        """Enrol anew: at once, since a proxy may have lost its disk; later, if it has just forgotten us."""
        if self.key is None:
            return  # An answer to what we asked before we knew.
        self.key = None
        self._forgotten += 1
        if self._forgotten == 1:
            self._enrol(now)
        else:
            self._alarms.set(_ENROL, now + backoff(self._rng, self._config.retry_us, self._forgotten - 2))

    def _enrol(self, now: int) -> None:
        if not self._caller.up:
            return
        if self._enrolling is None:
            self._enrolling = (self._next(), begin_enrolment(self._server, self._entropy), 0)
        number, begun, tries = self._enrolling
        self._enrolling = (number, begun, tries + 1)
        self._post(self.proxy, self._part.build_enrol(number, begun), now)
        if self._enrol_owed_us is None:
            self._enrol_owed_us = now - self._enrol_owed_before_us
        self._alarms.set(_ENROL, now + backoff(self._rng, self._config.retry_us, tries))

    def _enrolled(self, code: ReplyCode, now: int) -> None:
        if self._enrolling is None or code is not ReplyCode.DONE:
            self._refused(_ENROL, code)
            return
        self._clear(_ENROL)
        self.key, self._enrolling = self._enrolling[1].key, None
        self._alarms.cancel(_ENROL)
        for number in list(self._flying):
            self._send(number, now)
        self._fill(now)

    def _fill(self, now: int) -> None:
        while (
            self._caller.up and self.key is not None and self._waiting and len(self._flying) < self._config.flight_max
        ):
            number = next(iter(self._waiting))
            self._flying[number] = self._waiting.pop(number)
            self._send(number, now)

    def _send(self, number: int, now: int) -> None:
        request = self._flying.get(number)
        if request is None or not self._caller.up or self.key is None:
            return
        try:
            message = request.build(number, self.key, now)
        except LocalError:
            pass  # Not at this time: a grant has ended, and may be renewed.
        else:
            request.given_up = isinstance(message, Release)
            self._post(self.proxy, message, now)
            if request.owed_us is None:
                request.owed_us = now - request.owed_before_us
        self._again(number, request, now)

    def _hasten_older(self, answered: _Request, now: int) -> None:
        """Let requests go out soon again that were last sent before one that the server has answered.

        While the server is down, pauses grow to sixteen times `retry_us`. Its first answer shows that it is up again.
        A pause is not cut below `retry_us`: a proxy that drops a request and hands others on does not multiply it.
        A refused request keeps its pause, for it has its answer.
        """
        least_us = max(self._config.retry_us, self._answers.patience_us)
        for number, request in self._flying.items():
            if request.tries > 1 and request.last_us < answered.last_us and number not in self._refusals:
                self._alarms.set(number, max(now, request.last_us + least_us))

    def _again(self, number: int, request: _Request, now: int) -> None:
        if not request.tries:
            request.sent_us = now
        request.last_us = now
        pause_us = backoff(self._rng, self._config.retry_us, request.tries)
        self._alarms.set(number, now + max(pause_us, self._answers.patience_us))
        request.tries += 1

    def _refused(self, number: int, code: ReplyCode) -> None:
        self._clear(number)
        self._refusals[number] = code
        self.refused_requests[code] += 1

    def _clear(self, number: int) -> None:
        if (code := self._refusals.pop(number, None)) is not None:
            self.refused_requests[code] -= 1

    def _next(self) -> int:
        self._number = (self._number + 1) % _NUMBERS
        return self._number


class _Answers:
    """How long answers take, so that nobody is asked twice who is only busy: to answer twice would make it busier.

    Only answers to what was asked once count, since of others nobody knows to which asking they are.
    """

    def __init__(self, most_us: int) -> None:
        self._most_us, self._usual_us = most_us, 0

    @property
    def patience_us(self) -> int:
        """For how long at least an answer is waited for."""
        return min(2 * self._usual_us, self._most_us)

    def note(self, request: _Request, now: int) -> None:
        if request.tries == 1:
            self._usual_us += (now - request.sent_us - self._usual_us) // 8


_NUMBERS: Final = 1 << 32
_ENROL: Final = -1
_SILENT_RETRIES: Final = 3
"""A relay that has left requests unanswered for so many times `retry_us` counts as silent."""
_ANSWER_US: Final = 1_000_000
"""What an answer takes at most, as long as none has been measured that took longer."""
