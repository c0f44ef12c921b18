"""A client's connection to one proxy: its stream, its enrolment there, and its requests until they are answered.

The client repeats a request until it is confirmed: after some time without an answer, and when the stream is up again.
Each repetition is built afresh, under the current key of the enrolment and the current keys of the epoch. Proxy and
server act only once on a repeated request, so a slow answer does no harm. A refusal means "not now": the owner sees the
reason (`refused_requests`) and decides whether to go on.

The refusal UNKNOWN means more: the other side lacks the state that the request depends on, and the client must send
that state again. Most requests depend on the enrolment; a request that depends on something else names its own handler.
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
from veilcast.relay.profile import ClientProfile, LeasePeriod
from veilcast.relay.transformation_key import EnrolmentStart, ServerPublicKey, begin_enrolment
from veilcast.wire.base import Message
from veilcast.wire.relay import Release, ReplyCode, RequestReply

BuildRequest: TypeAlias = Callable[[int, Scalar, int], Message]
"""Build the request with this number, under this key, at this time; `LocalError` if it cannot be built now."""

SendMessage: TypeAlias = Callable[[Address, Message, int], None]


@dataclass(slots=True)
class _Request:
    build: BuildRequest
    on_done: WhenDurable
    on_unknown: WhenDurable | None
    proof: bytes | None
    on_held: WhenDurable | None = None
    period: LeasePeriod | None = None
    is_release: bool = False
    """True if the request last left as a release, which no party proves: a lost release does no harm."""
    tries: int = 0
    sent_us: int = 0
    """When the request was first sent."""
    last_us: int = 0
    """When the request was last sent or refused."""
    owed_us: int | None = None
    """Since when an answer is owed, not counting times without a stream; None if no answer is owed."""
    owed_before_us: int = 0
    """How long an answer was owed on earlier streams: a proxy that cuts its streams does not hide a silent server."""


class ProxyConnection:
    """Bounded: `flight_max` requests in flight; callers bound the number of waiting requests."""

    def __init__(
        self,
        config: RelayClientConfig,
        profile: ClientProfile,
        server: ServerPublicKey,
        proxy: Address,
        post: SendMessage,
        rng: Random,
        entropy: Entropy,
        now: int,
    ) -> None:
        self._config, self._profile, self._server, self.proxy = config, profile, server, proxy
        self._post, self._rng, self._entropy = post, rng, entropy
        self.key: Scalar | None = None
        """k_u, while the client is enrolled."""
        self.refused_requests: Counter[ReplyCode] = Counter()
        """Requests whose last answer was a refusal, by reason."""
        self._refusals: dict[int, ReplyCode] = {}
        self._connector = Connector(proxy, config.connect_us, rng, now)
        # Requests of an earlier run may still be answered, so the first number is random.
        self._number = rng.randrange(_NUMBERS)
        self._enrolling: tuple[int, EnrolmentStart, int] | None = None
        self._times_forgotten = 0
        """How often the proxy did not know this client since the last confirmed request."""
        self._answer_times = _AnswerTimes(config.retry_us << DOUBLINGS_MAX)
        self._enrol_owed_us: int | None = None
        """Since when an answer to the enrolment is owed; compare `_Request.owed_us`."""
        self._enrol_owed_before_us = 0
        self._in_flight: dict[int, _Request] = {}
        self._waiting: dict[int, _Request] = {}
        self._timers: Timers[int] = Timers()

    def __len__(self) -> int:
        return len(self._in_flight) + len(self._waiting)

    def request(
        self,
        now: int,
        build: BuildRequest,
        on_done: WhenDurable,
        on_unknown: WhenDurable | None = None,
        *,
        proof: bytes | None = None,
        on_held: WhenDurable | None = None,
        period: LeasePeriod | None = None,
    ) -> int:
        """Repeat a request until it is confirmed. Returns its number, for `cancel`.

        With `proof`, only an answer that carries the proof confirms the request: the proxy cannot confirm it in the
        server's place. Before the `period` of a lease, the proxy may answer that it holds the request; after it,
        nothing is left to prove.
        """
        number = self._next_number()
        self._waiting[number] = _Request(build, on_done, on_unknown, proof, on_held, period)
        self._send_waiting(now)
        return number

    def is_unsent(self, number: int) -> bool:
        return number in self._waiting

    def silent_us(self, now: int) -> int:
        """How long the relay has owed an answer, if longer than answers ever take while the proxy is up; otherwise 0.

        The proxy forwards a request and confirms nothing in the server's place. So if a proxy is up and brings no
        answer, its server is down or the proxy withholds the requests. Each request counts separately. Answers to other
        requests change nothing. Neither does the answer that this client is unknown, which a proxy can give by itself.
        """
        owed = [self._enrol_owed_us, *(request.owed_us for request in self._in_flight.values())]
        silent_us = max((now - since_us for since_us in owed if since_us is not None), default=0)
        usual_us = max(_SILENT_RETRIES * self._config.retry_us, 2 * self._answer_times.patience_us)
        return silent_us if silent_us >= usual_us else 0

    def delay(self, now: int) -> Delay:
        """Why an unconfirmed request waits, and roughly until when."""
        if not self._connector.up:
            return Delay("no stream to the relay's proxy is up")
        if self.silent_us(now):
            return Delay("the relay does not answer")
        answer_us = max(self._answer_times.patience_us, _ANSWER_US)
        if self.key is None:
            return Delay("the relay enrols this member first", now + 2 * answer_us)
        if self._refusals:
            return Delay("the relay has refused it for now; it is sent again")
        rounds = 1 + len(self._waiting) // self._config.flight_max
        return Delay("the relay's server is to confirm it", now + rounds * answer_us)

    def cancel(self, number: int, now: int) -> None:
        """Stop repeating the request."""
        self._clear_refusal(number)
        self._timers.cancel(number)
        self._waiting.pop(number, None)
        if self._in_flight.pop(number, None) is not None:
            self._send_waiting(now)

    def send_if_up(self, message: Message, now: int) -> None:
        """Send a message that is useful only while the proxy is connected."""
        if self._connector.up and self.key is not None:
            self._post(self.proxy, message, now)

    def peer_up(self, now: int) -> None:
        self._connector.peer_up()
        if self.key is None:
            self._enrol(now)
        for number in list(self._in_flight):
            self._send(number, now)
        self._send_waiting(now)

    def peer_lost(self, now: int) -> None:
        self._connector.peer_lost(now)
        if self._enrol_owed_us is not None:
            self._enrol_owed_before_us = now - self._enrol_owed_us
            self._enrol_owed_us = None
        for request in self._in_flight.values():
            if request.owed_us is not None:
                request.owed_before_us = now - request.owed_us
                request.owed_us = None

    def handle_reply(self, reply: RequestReply, now: int) -> None:
        code = ReplyCode(reply.code)
        if self._enrolling is not None and reply.number == self._enrolling[0]:
            self._enrol_owed_us, self._enrol_owed_before_us = None, 0
            self._finish_enrolment(code, now)
            return
        request = self._in_flight.get(reply.number)
        if request is None:
            return
        is_over = request.period is not None and now >= request.period.until_us
        if code is ReplyCode.DONE and request.proof not in (None, reply.proof) and not (request.is_release or is_over):
            raise ForgedError("the proxy confirms a request without the server's proof")
        if code is ReplyCode.HELD and (request.period is None or now >= request.period.begin_us):
            raise ForgedError("the proxy still holds a request whose time has come")
        ends = {ReplyCode.DONE: request.on_done, ReplyCode.HELD: request.on_held, ReplyCode.UNKNOWN: request.on_unknown}
        if code in (ReplyCode.DONE, ReplyCode.HELD):
            self._times_forgotten = 0
        self._answer_times.record(request, now)
        if (then := ends.get(code)) is not None:
            del self._in_flight[reply.number]
            self._timers.cancel(reply.number)
            self._clear_refusal(reply.number)
            if code is ReplyCode.DONE:
                self._hasten_older(request, now)
            self._send_waiting(now)
            then(now)
        elif code is ReplyCode.UNKNOWN:
            self._enrol_again(now)
        else:
            self._record_refusal(reply.number, code)
            request.owed_us, request.owed_before_us = None, 0
            self._schedule_repeat(reply.number, request, now)

    def next_us(self) -> int | None:
        return earliest(self._connector.next_us, self._timers.next_us())

    def next_event(self) -> Event | None:
        return self._connector.next_event()

    def handle(self, now: int) -> None:
        self._connector.handle(now)
        for number in self._timers.pop_due(now):
            if number == _ENROL:
                self._enrol(now)
            else:
                self._send(number, now)

    def _enrol_again(self, now: int) -> None:
        """Enrol again: at once, since a proxy may have lost its disk; later, if it has forgotten this client just
        before."""
        if self.key is None:
            return  # The answer to a request from before the last UNKNOWN.
        self.key = None
        self._times_forgotten += 1
        if self._times_forgotten == 1:
            self._enrol(now)
        else:
            self._timers.set(_ENROL, now + backoff(self._rng, self._config.retry_us, self._times_forgotten - 2))

    def _enrol(self, now: int) -> None:
        if not self._connector.up:
            return
        if self._enrolling is None:
            self._enrolling = (self._next_number(), begin_enrolment(self._server, self._entropy), 0)
        number, start, tries = self._enrolling
        self._enrolling = (number, start, tries + 1)
        self._post(self.proxy, self._profile.build_enrol(number, start), now)
        if self._enrol_owed_us is None:
            self._enrol_owed_us = now - self._enrol_owed_before_us
        self._timers.set(_ENROL, now + backoff(self._rng, self._config.retry_us, tries))

    def _finish_enrolment(self, code: ReplyCode, now: int) -> None:
        if self._enrolling is None or code is not ReplyCode.DONE:
            self._record_refusal(_ENROL, code)
            return
        self._clear_refusal(_ENROL)
        self.key, self._enrolling = self._enrolling[1].key, None
        self._timers.cancel(_ENROL)
        for number in list(self._in_flight):
            self._send(number, now)
        self._send_waiting(now)

    def _send_waiting(self, now: int) -> None:
        while (
            self._connector.up
            and self.key is not None
            and self._waiting
            and len(self._in_flight) < self._config.flight_max
        ):
            number = next(iter(self._waiting))
            self._in_flight[number] = self._waiting.pop(number)
            self._send(number, now)

    def _send(self, number: int, now: int) -> None:
        request = self._in_flight.get(number)
        if request is None or not self._connector.up or self.key is None:
            return
        try:
            message = request.build(number, self.key, now)
        except LocalError:
            pass  # Not now: a grant has expired, and may be renewed.
        else:
            request.is_release = isinstance(message, Release)
            self._post(self.proxy, message, now)
            if request.owed_us is None:
                request.owed_us = now - request.owed_before_us
        self._schedule_repeat(number, request, now)

    def _hasten_older(self, answered: _Request, now: int) -> None:
        """Repeat soon the requests that were last sent before one that the server has answered.

        While the server is down, pauses grow to sixteen times `retry_us`. Its first answer shows that it is up again. A
        pause never falls below `retry_us`: a proxy that drops one request and forwards others cannot multiply it. A
        refused request keeps its pause, because it has its answer.
        """
        least_us = max(self._config.retry_us, self._answer_times.patience_us)
        for number, request in self._in_flight.items():
            if request.tries > 1 and request.last_us < answered.last_us and number not in self._refusals:
                self._timers.set(number, max(now, request.last_us + least_us))

    def _schedule_repeat(self, number: int, request: _Request, now: int) -> None:
        if not request.tries:
            request.sent_us = now
        request.last_us = now
        pause_us = backoff(self._rng, self._config.retry_us, request.tries)
        self._timers.set(number, now + max(pause_us, self._answer_times.patience_us))
        request.tries += 1

    def _record_refusal(self, number: int, code: ReplyCode) -> None:
        self._clear_refusal(number)
        self._refusals[number] = code
        self.refused_requests[code] += 1

    def _clear_refusal(self, number: int) -> None:
        if (code := self._refusals.pop(number, None)) is not None:
            self.refused_requests[code] -= 1

    def _next_number(self) -> int:
        self._number = (self._number + 1) % _NUMBERS
        return self._number


class _AnswerTimes:
    """How long answers take, so that a busy relay is not asked twice: a second answer would make it busier.

    Only answers to requests that were sent once count. For the others it is unknown which transmission the answer
    belongs to.
    """

    def __init__(self, most_us: int) -> None:
        self._most_us, self._usual_us = most_us, 0

    @property
    def patience_us(self) -> int:
        """Minimum time to wait for an answer."""
        return min(2 * self._usual_us, self._most_us)

    def record(self, request: _Request, now: int) -> None:
        if request.tries == 1:
            self._usual_us += (now - request.sent_us - self._usual_us) // 8


_NUMBERS: Final = 1 << 32
_ENROL: Final = -1
_SILENT_RETRIES: Final = 3
"""A relay that leaves a request unanswered for this many times `retry_us` counts as silent."""
_ANSWER_US: Final = 1_000_000
"""Assumed time of an answer until a longer one has been measured."""
