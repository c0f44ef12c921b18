"""The proxy: knows its clients by name, and neither their interests nor their publications.

The proxy stands between two streams. It forwards a client's request under its own number and pseudonym, with the
subjects moved to the server's key. Answers and deliveries come back the same way. In both directions it collects
messages for a while, shuffles them, and forwards them.

With `holds_presence`, leases and deliveries wait here (`presence`), and the server does not see who is there. Without
it, and in `paper`, the proxy stores neither: clients repeat requests that are lost, and the server keeps deliveries.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from random import Random
from typing import Final

from veilcast.core.connector import Connectors
from veilcast.core.host import HostBase
from veilcast.core.timers import earliest
from veilcast.crypto.group import Multiply, Scalar, multiply_each
from veilcast.errors import ExcessError, LocalError, MalformedError, RemoteError, StaleError
from veilcast.machine import Address, Disconnect, Entropy, Event
from veilcast.relay.config import RelayProxyConfig
from veilcast.relay.forwarding import Batch, ClientRequest, Downward, ForwardedRequest, Question, Upward
from veilcast.relay.hardened import HardenedProxyProfile
from veilcast.relay.limits import ClientRateLimits
from veilcast.relay.pacer import make_pacer, unpack_frame
from veilcast.relay.paper import PaperProxyProfile
from veilcast.relay.presence import HeldLeases, HeldMail
from veilcast.relay.profile import ProxyProfile
from veilcast.relay.roster import ClientRoster
from veilcast.relay.transformation_key import ServerPublicKey, combine_shares
from veilcast.wire import decode, encode
from veilcast.wire.base import Message
from veilcast.wire.relay import (
    Blind,
    Blinded,
    EnrolClient,
    Lease,
    LeaseAhead,
    Receipt,
    RelayDelivery,
    Release,
    ReplyCode,
    RequestReply,
    Resume,
    Subjects,
    Submit,
)


class RelayProxy(HostBase):
    """A `Machine`, with the notices of `Peers` and `Durable`. It asks for `Listen("member")`, and for `Connect` to
    each of `servers`. They share their records; one of them serves at a time, and only that one answers calls.

    `mask` is xs, shared by all proxies of one relay and unknown to its servers (None in `paper`). `records` holds the
    records that earlier runs stored and did not settle: the clients' transformation keys, and the pseudonyms of their
    leases. `refused` counts rejected input by error class or by the code of the answer. `undeliverable` counts
    deliveries whose client was absent or unknown.
    """

    def __init__(
        self,
        config: RelayProxyConfig,
        public: ServerPublicKey,
        servers: Sequence[Address],
        mask: Scalar | None,
        rng: Random,
        entropy: Entropy,
        now: int,
        records: Mapping[int, bytes] | None = None,
        multiply: Multiply = multiply_each,
    ) -> None:
        if (mask is None) != (config.profile == "paper"):
            raise LocalError("a proxy of the hardened profile has a mask, and one of the paper's has none")
        records = records or {}
        super().__init__("member", records)
        self._config = config
        self._server: Address | None = None
        """The server that requests go to: the last one that has answered a call."""
        self._profile: ProxyProfile = (
            PaperProxyProfile() if mask is None else HardenedProxyProfile(public, mask, multiply)
        )
        self._roster = ClientRoster(
            config, entropy, self._records, records, one_pseudonym_per_client=self._profile.one_pseudonym_per_client
        )
        self._limits = ClientRateLimits(config)
        self._up: Batch[Upward] = Batch(rng, wait_us=config.batch_us, most=config.batch_max)
        self._down: Batch[Downward] = Batch(rng, wait_us=config.batch_us, most=config.batch_max)
        self._number = rng.randrange(_NUMBERS)
        self._in_flight: dict[int, ForwardedRequest | Question] = {}
        self._answered_us = now
        """When the server last answered."""
        self._connected: dict[Address, int] = {}
        """Connected clients, with the number of receipts each may send: the proxy forwards a receipt only for a
        delivery."""
        self._enrolling: dict[Address, int] = {}
        """Number of the latest enrolment request of each client."""
        self._connectors = Connectors(config.connect_us, rng)
        for server in servers:
            self._connectors.add(server, now)
        self._pacer = make_pacer(config, rng)
        self._leases: HeldLeases | None = None
        self._mail: HeldMail | None = None
        if config.holds_presence and not self._profile.one_pseudonym_per_client:
            self._leases = HeldLeases(
                config, self._roster, self._records, rng, now, self._queue_question, self._queue_downward
            )
            self._mail = HeldMail(config, self._roster, self._records, records)
        self.undeliverable = 0

    # --- the driver

    def receive(self, data: bytes, source: Address, now: int) -> None:
        self._receive_with(lambda: self._hear(data, source, now))
        self._flush(now)

    def handle_timer(self, now: int) -> None:
        self.version += 1
        for pseudonym in self._roster.handle(now):
            self._forget_lease(pseudonym)
        for part in (self._leases, self._mail):
            if part is not None:
                part.handle(now)
        self._connectors.handle(now)
        self._flush(now)
        if self._pacer is not None:
            self._frames += self._pacer.handle(now)

    def next_timer(self) -> int | None:
        pacer_us = None if self._pacer is None else self._pacer.next_us()
        held = (part.next_us() for part in (self._leases, self._mail) if part is not None)
        batches = (self._up.due_us, self._down.due_us)
        return earliest(pacer_us, *batches, *held, self._roster.next_us(), self._connectors.next_us)

    def next_event(self) -> Event | None:
        if not self._events and (event := self._connectors.next_event()) is not None:
            return event
        return super().next_event()

    def stored(self, record: int, now: int) -> None:
        super().stored(record, now)
        self._flush(now)

    def peer_up(self, peer: Address, now: int) -> None:
        if peer in self._connectors:
            self._connectors.peer_up(peer)
            self._server = peer
            return
        self._connected[peer] = 0
        if self._pacer is not None:
            self._pacer.stream_up(peer, now)
        if self._mail is not None:
            self._mail.client_up(peer)
            self._flush(now)

    def peer_lost(self, peer: Address, now: int) -> None:
        if peer in self._connectors:
            self._connectors.peer_lost(peer, now)
            if peer == self._server:
                self._server = next(iter(self._connectors.up), None)
            return
        self._connected.pop(peer, None)
        self._enrolling.pop(peer, None)
        if self._mail is not None:
            self._mail.client_lost(peer)
        if self._pacer is not None:
            self._pacer.stream_down(peer)

    # --- checkers

    def sizes(self) -> dict[str, int]:
        """Entries in each table."""
        return {
            "clients": len(self._roster),
            "leases": self._roster.leases,
            "limits": len(self._limits),
            "flying": len(self._in_flight),
            "batch": len(self._up) + len(self._down),
            "backlog": 0 if self._pacer is None else len(self._pacer),
            "held": 0 if self._mail is None else len(self._mail),
            "remembered": 0 if self._mail is None else self._mail.remembered,
        }

    # --- up

    def _hear(self, data: bytes, source: Address, now: int) -> None:
        if source in self._connectors:
            self._handle_answer(decode(data), now)
        else:
            for each in unpack_frame(self._pacer, data, source, lambda: self._disconnect(source, now)):
                self._receive_with(partial(self._hear_request, each, source, now))

    def _hear_request(self, data: bytes, client: Address, now: int) -> None:
        self._handle_request(decode(data), len(data), client, now)

    def _handle_request(self, message: Message, size: int, client: Address, now: int) -> None:
        publishes = isinstance(message, Submit)
        if isinstance(message, Receipt):
            self._forward_receipt(client, message, now)
            return
        if not isinstance(message, EnrolClient | Lease | LeaseAhead | Release | Resume | Submit):
            raise MalformedError("not for a proxy")
        if not self._limits.allows(client, size, now, publishes=publishes):
            self._refuse_request(client, message.number, ReplyCode.LIMITED, now)
        elif isinstance(message, EnrolClient):
            self._enrolling[client] = message.number
            self._queue_upward(client, message, lambda number: Blind(number, message.sealed), now)
        elif client not in self._roster:
            self._refuse_request(client, message.number, ReplyCode.UNKNOWN, now)
        elif self._is_excessive(message):
            self._refuse_request(client, message.number, ReplyCode.LIMITED, now)
        elif isinstance(message, Lease | LeaseAhead):
            self._forward_lease(client, message, now)
        elif isinstance(message, Submit):
            self._forward_submit(client, message, now)
        else:
            self._forward_about_lease(client, message, now)

    def _forward_receipt(self, client: Address, receipt: Receipt, now: int) -> None:
        if client not in self._roster or not self._connected.get(client):
            raise ExcessError("a receipt without a delivery")
        self._connected[client] -= 1
        if (pseudonym := self._roster.pseudonym_of(client, receipt.name)) is None:
            return
        if self._mail is not None:
            self._mail.acknowledge(pseudonym, receipt.ticket)
        else:
            self._up.put(Upward(lambda _: Receipt(pseudonym, receipt.ticket)), now)

    def _is_excessive(self, message: Lease | LeaseAhead | Release | Resume | Submit) -> bool:
        subjects: Subjects = () if isinstance(message, Resume) else message.subjects
        return sum(map(len, subjects)) > self._config.subjects_each

    def _forward_lease(self, client: Address, lease: Lease | LeaseAhead, now: int) -> None:
        if not self._profile.one_pseudonym_per_client and lease.until_us > now + self._config.lease_us_max:
            self._refuse_request(client, lease.number, ReplyCode.MALFORMED, now)
            return
        assigned = self._roster.assign_pseudonym(client, lease.name, lease.until_us, now)
        if assigned is None:
            self._refuse_request(client, lease.number, ReplyCode.LIMITED, now)
            return
        record, pseudonym = assigned
        transformation = self._roster.transformation(client)
        if self._leases is not None:
            self._hold_lease(client, lease, record, pseudonym, now)
            return

        def build_moved(number: int) -> Message:
            subjects = self._profile.move_subjects(lease.subjects, transformation)
            return Lease(number, pseudonym, lease.until_us, subjects, lease.sealed)

        self._records.when_durable(
            record, now, lambda now: self._queue_upward(client, lease, build_moved, now, pseudonym)
        )

    def _hold_lease(self, client: Address, lease: Lease | LeaseAhead, record: int, pseudonym: bytes, now: int) -> None:
        assert self._leases is not None
        transformation = self._roster.transformation(client)
        try:
            with self.faults.refuse_exceptions():
                self._leases.accept(
                    pseudonym, record, lease, lambda each: self._profile.move_subjects(each, transformation), now
                )
        except RemoteError:
            self._roster.end_lease(pseudonym)
            self._refuse_request(client, lease.number, ReplyCode.MALFORMED, now)
            raise
        if self._mail is not None:
            self._mail.resume(pseudonym, client)

    def _forward_submit(self, client: Address, submit: Submit, now: int) -> None:
        transformation = self._roster.transformation(client)

        def build_moved(number: int) -> Message:
            subjects = self._profile.move_subjects(submit.subjects, transformation)
            return Submit(number, subjects, self._profile.move_body_up(submit.cipher, transformation), submit.sealed)

        self._queue_upward(client, submit, build_moved, now)

    def _forward_about_lease(self, client: Address, request: Release | Resume, now: int) -> None:
        """A request about an existing lease."""
        pseudonym = self._roster.pseudonym_of(client, request.name)
        if pseudonym is None:
            self._refuse_request(client, request.number, ReplyCode.UNKNOWN, now)
            return
        if self._leases is not None:
            self._answer_about_lease(client, request, pseudonym, now)
            return
        transformation = self._roster.transformation(client)

        def build_moved(number: int) -> Message:
            if isinstance(request, Resume):
                return Resume(number, pseudonym)
            return Release(number, pseudonym, self._profile.move_subjects(request.subjects, transformation))

        self._queue_upward(client, request, build_moved, now, pseudonym)

    def _answer_about_lease(self, client: Address, request: Release | Resume, pseudonym: bytes, now: int) -> None:
        """The server is not asked. While it does not answer the proxy's own questions, neither does the proxy: its
        clients must not take the relay for alive."""
        assert self._leases is not None
        assert self._mail is not None
        if isinstance(request, Release):
            self._leases.release(pseudonym, now)
            self._mail.forget(pseudonym)
            self._queue_downward(client, RequestReply(request.number, ReplyCode.DONE), now)
            return
        self._mail.resume(pseudonym, client)
        if not self._is_server_silent(now):
            self._leases.resume(pseudonym, request.number, now)

    def _is_server_silent(self, now: int) -> bool:
        if self._server is None or not self._in_flight:
            return self._server is None
        asked_us = next(iter(self._in_flight.values())).until_us - self._config.request_us
        return self._answered_us < asked_us and now >= asked_us + _SILENT_US

    def _forget_lease(self, pseudonym: bytes) -> None:
        if self._leases is not None and self._mail is not None:
            self._leases.forget(pseudonym)
            self._mail.forget(pseudonym)

    def _queue_question(self, pseudonym: bytes, build: Callable[[int], Message], now: int) -> None:
        self._up.put(Upward(build, Question(pseudonym, now + self._config.request_us)), now)

    def _queue_upward(
        self,
        client: Address,
        request: ClientRequest,
        build: Callable[[int], Message],
        now: int,
        pseudonym: bytes = b"",
    ) -> None:
        forwarded = ForwardedRequest(client, request, pseudonym, now + self._config.request_us)
        self._up.put(Upward(build, forwarded), now)

    # --- down

    def _handle_answer(self, message: Message, now: int) -> None:
        if isinstance(message, RelayDelivery):
            if self._mail is None:
                self._forward_delivery(message, now)
            else:
                self._hold_delivery(message, now)
            return
        if not isinstance(message, RequestReply | Blinded):
            raise MalformedError("not for a proxy")
        forwarded = self._in_flight.pop(message.number, None)
        self._answered_us = now
        if forwarded is None:
            raise StaleError("an answer to a request that is no longer open")
        if isinstance(forwarded, Question):
            if self._leases is None or isinstance(message, Blinded):
                raise MalformedError("an answer of another kind than the request")
            self._leases.handle_answer(forwarded.pseudonym, message, now)
            return
        if isinstance(message, Blinded):
            self._finish_enrolment(forwarded, message, now)
            return
        code = ReplyCode(message.code)
        ended = isinstance(forwarded.request, Release) or code is ReplyCode.UNKNOWN
        if ended and forwarded.pseudonym:
            self._roster.end_lease(forwarded.pseudonym)
        self._queue_downward(forwarded.client, RequestReply(forwarded.request.number, code, message.proof), now)

    def _finish_enrolment(self, forwarded: ForwardedRequest, blinded: Blinded, now: int) -> None:
        request, client = forwarded.request, forwarded.client
        if not isinstance(request, EnrolClient):
            raise MalformedError("a share without an enrolment request")
        if self._enrolling.get(client) != request.number:
            # A later enrolment overtook it in a batch, or its client has gone: no client would use this key.
            raise StaleError("an enrolment that its client no longer requests")
        try:
            transformation = combine_shares(Scalar(request.ratio), Scalar(blinded.share))
            self._profile.check_enrolment(transformation, request)
        except RemoteError:
            self._refuse_request(client, request.number, ReplyCode.MALFORMED, now)
            raise
        confirmation = RequestReply(request.number, ReplyCode.DONE)
        if not self._roster.enrol(
            client, transformation, now, lambda now: self._queue_downward(client, confirmation, now)
        ):
            self._refuse_request(client, request.number, ReplyCode.FULL, now)

    def _forward_delivery(self, delivery: RelayDelivery, now: int) -> None:
        for pseudonym in delivery.names:
            owner = self._roster.find_lease(pseudonym)
            if owner is None or owner[0] not in self._connected:
                self.undeliverable += 1
                continue
            client, name = owner
            self._queue_downward(client, RelayDelivery((name,), delivery.ticket, delivery.cipher, delivery.sealed), now)

    def _hold_delivery(self, delivery: RelayDelivery, now: int) -> None:
        assert self._mail is not None
        pseudonym, receipt = delivery.names[0], Receipt(delivery.names[0], delivery.ticket)
        owner = self._roster.find_lease(pseudonym)
        if owner is None or not self._mail.accept(
            owner[0], delivery, now, lambda now: self._up.put(Upward(lambda _: receipt), now)
        ):
            self.undeliverable += 1

    def _refuse_request(self, client: Address, number: int, code: ReplyCode, now: int) -> None:
        self.refused[code.name] += 1
        self._queue_downward(client, RequestReply(number, code), now)

    def _queue_downward(self, client: Address, message: Message, now: int) -> None:
        self._down.put(Downward(client, message), now)

    # --- inside

    def _flush(self, now: int) -> None:
        """Forward the batches that are due. Bodies are moved now, to the key that the subscriber has now."""
        self._queue_mail(now)
        for upward in self._up.take(now):
            self._send_up(upward, now)
        for downward in self._down.take(now):
            self._send_down(downward)
        self._queue_mail(now)

    def _queue_mail(self, now: int) -> None:
        """Queue held deliveries for clients that are there: of a long backlog, as many as a batch has room for."""
        while self._mail is not None:
            for client, delivery in self._mail.outgoing:
                if (owner := self._roster.find_lease(delivery.names[0])) is not None:
                    named = RelayDelivery((owner[1],), delivery.ticket, None, delivery.sealed)
                    self._queue_downward(client, named, now)
            self._mail.outgoing.clear()
            if len(self._down) >= self._config.batch_max or not self._mail.send_backlog():
                return

    def _send_up(self, upward: Upward, now: int) -> None:
        forwarded = upward.forwarded
        server = self._server
        if server is None:
            return  # The client repeats the request.
        if forwarded is None:
            self._post(server, upward.build(0))
            return
        while self._in_flight and next(iter(self._in_flight.values())).until_us <= now:
            del self._in_flight[next(iter(self._in_flight))]
        if len(self._in_flight) >= self._config.flight_max:
            if isinstance(forwarded, Question):
                return  # It is asked again.
            self._refuse_request(forwarded.client, forwarded.request.number, ReplyCode.FULL, now)
            return
        self._number = (self._number + 1) % _NUMBERS
        try:
            with self.faults.refuse_exceptions():
                message = upward.build(self._number)
        except RemoteError as error:
            self._refuse(error)
            if isinstance(forwarded, Question):
                return
            self._refuse_request(forwarded.client, forwarded.request.number, ReplyCode.MALFORMED, now)
            return
        self._in_flight[self._number] = forwarded
        self._post(server, message)

    def _send_down(self, downward: Downward) -> None:
        client, message = downward.client, downward.message
        if isinstance(message, RelayDelivery):
            if client not in self._roster:
                return
            try:
                with self.faults.refuse_exceptions():
                    cipher = self._profile.move_body_down(message.cipher, self._roster.transformation(client))
            except RemoteError as error:
                self._refuse(error)
                return
            message = RelayDelivery(message.names, message.ticket, cipher, message.sealed)
            if client in self._connected:
                self._connected[client] += 1
        self._post(client, message)

    def _disconnect(self, client: Address, now: int) -> None:
        self._events.append(Disconnect(client))
        self.peer_lost(client, now)

    def _post(self, peer: Address, message: Message) -> None:
        if self._pacer is None or peer in self._connectors:
            super()._post(peer, message)
        else:
            self._pacer.put(peer, encode(message))


_NUMBERS: Final = 1 << 32
_SILENT_US: Final = 5_000_000
"""A server that has left a request unanswered for this long, and all others since, counts as silent."""
