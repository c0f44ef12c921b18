"""The proxy: knows its clients by name, and neither their interests nor their publications.

The proxy stands between two streams. It forwards a client's request under its own number and pseudonym, with the
subjects moved to the server's key. Answers and deliveries come back the same way. In both directions it collects
messages for a while, shuffles them, and forwards them. The proxy stores no requests: the client repeats what is lost on
either side. The proxy stores no deliveries for absent clients either: the server keeps them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Final, Generic, TypeAlias, TypeVar

from veilcast.core.connector import Connectors
from veilcast.core.host import HostBase
from veilcast.core.timers import earliest
from veilcast.crypto.group import Multiply, Scalar, multiply_each
from veilcast.errors import ExcessError, LocalError, MalformedError, RemoteError, StaleError
from veilcast.machine import Address, Disconnect, Entropy, Event
from veilcast.relay.config import RelayProxyConfig
from veilcast.relay.hardened import HardenedProxyProfile
from veilcast.relay.limits import ClientRateLimits
from veilcast.relay.pacer import make_pacer, unpack_frame
from veilcast.relay.paper import PaperProxyProfile
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
    Receipt,
    RelayDelivery,
    Release,
    ReplyCode,
    RequestReply,
    Resume,
    Subjects,
    Submit,
)

Item = TypeVar("Item")


class Batch(Generic[Item]):
    """Messages that arrive within a time window and leave together, in random order.

    An observer of both sides of a proxy links incoming to outgoing messages by time and order. A batch hides both, up
    to its size: the sender of one of n messages is one of n. A batch does not protect against an observer of many
    batches (statistical disclosure; `experiments/relay-attacks`). Bounded: a batch of `most` items is released at once.
    """

    def __init__(self, rng: Random, *, wait_us: int, most: int) -> None:
        self._rng, self._wait_us, self._most = rng, wait_us, most
        self._items: list[Item] = []
        self.due_us: int | None = None

    def __len__(self) -> int:
        return len(self._items)

    def put(self, item: Item, now: int) -> None:
        self._items.append(item)
        if self.due_us is None:
            self.due_us = now + self._wait_us
        if len(self._items) >= self._most:
            self.due_us = now

    def take(self, now: int) -> list[Item]:
        """Return all items, shuffled, if the batch is due; otherwise none."""
        if self.due_us is None or self.due_us > now:
            return []
        items, self._items, self.due_us = self._items, [], None
        self._rng.shuffle(items)
        return items


ClientRequest: TypeAlias = EnrolClient | Lease | Release | Resume | Submit


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
        self._up: Batch[_Upward] = Batch(rng, wait_us=config.batch_us, most=config.batch_max)
        self._down: Batch[_Downward] = Batch(rng, wait_us=config.batch_us, most=config.batch_max)
        self._number = rng.randrange(_NUMBERS)
        self._in_flight: dict[int, _ForwardedRequest] = {}
        self._connected: dict[Address, int] = {}
        """Connected clients, with the number of receipts each may send: the proxy forwards a receipt only for a
        delivery."""
        self._enrolling: dict[Address, int] = {}
        """Number of the latest enrolment request of each client."""
        self._connectors = Connectors(config.connect_us, rng)
        for server in servers:
            self._connectors.add(server, now)
        self._pacer = make_pacer(config, rng)
        self.undeliverable = 0

    # --- the driver

    def receive(self, data: bytes, source: Address, now: int) -> None:
        self._receive_with(lambda: self._hear(data, source, now))
        self._flush(now)

    def handle_timer(self, now: int) -> None:
        self.version += 1
        self._roster.handle(now)
        self._connectors.handle(now)
        self._flush(now)
        if self._pacer is not None:
            self._frames += self._pacer.handle(now)

    def next_timer(self) -> int | None:
        pacer_us = None if self._pacer is None else self._pacer.next_us()
        return earliest(pacer_us, self._up.due_us, self._down.due_us, self._roster.next_us(), self._connectors.next_us)

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

    def peer_lost(self, peer: Address, now: int) -> None:
        if peer in self._connectors:
            self._connectors.peer_lost(peer, now)
            if peer == self._server:
                self._server = next(iter(self._connectors.up), None)
            return
        self._connected.pop(peer, None)
        self._enrolling.pop(peer, None)
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
        }

    # --- up

    def _hear(self, data: bytes, source: Address, now: int) -> None:
        if source in self._connectors:
            self._handle_answer(decode(data), now)
        else:
            for each in unpack_frame(self._pacer, data, source, lambda: self._disconnect(source, now)):
                self._handle_request(decode(each), len(each), source, now)

    def _handle_request(self, message: Message, size: int, client: Address, now: int) -> None:
        publishes = isinstance(message, Submit)
        if isinstance(message, Receipt):
            self._forward_receipt(client, message, now)
            return
        if not isinstance(message, EnrolClient | Lease | Release | Resume | Submit):
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
        elif isinstance(message, Lease):
            self._forward_lease(client, message, now)
        elif isinstance(message, Submit):
            self._forward_submit(client, message, now)
        else:
            self._forward_about_lease(client, message, now)

    def _forward_receipt(self, client: Address, receipt: Receipt, now: int) -> None:
        if client not in self._roster or not self._connected.get(client):
            raise ExcessError("a receipt without a delivery")
        self._connected[client] -= 1
        if (pseudonym := self._roster.pseudonym_of(client, receipt.name)) is not None:
            self._up.put(_Upward(lambda _: Receipt(pseudonym, receipt.ticket)), now)

    def _is_excessive(self, message: Lease | Release | Resume | Submit) -> bool:
        subjects: Subjects = () if isinstance(message, Resume) else message.subjects
        return sum(map(len, subjects)) > self._config.subjects_each

    def _forward_lease(self, client: Address, lease: Lease, now: int) -> None:
        if not self._profile.one_pseudonym_per_client and lease.until_us > now + self._config.lease_us_max:
            self._refuse_request(client, lease.number, ReplyCode.MALFORMED, now)
            return
        assigned = self._roster.assign_pseudonym(client, lease.name, lease.until_us, now)
        if assigned is None:
            self._refuse_request(client, lease.number, ReplyCode.LIMITED, now)
            return
        record, pseudonym = assigned
        transformation = self._roster.transformation(client)

        def build_moved(number: int) -> Message:
            subjects = self._profile.move_subjects(lease.subjects, transformation)
            return Lease(number, pseudonym, lease.until_us, subjects, lease.sealed)

        self._records.when_durable(
            record, now, lambda now: self._queue_upward(client, lease, build_moved, now, pseudonym)
        )

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
        transformation = self._roster.transformation(client)

        def build_moved(number: int) -> Message:
            if isinstance(request, Resume):
                return Resume(number, pseudonym)
            return Release(number, pseudonym, self._profile.move_subjects(request.subjects, transformation))

        self._queue_upward(client, request, build_moved, now, pseudonym)

    def _queue_upward(
        self,
        client: Address,
        request: ClientRequest,
        build: Callable[[int], Message],
        now: int,
        pseudonym: bytes = b"",
    ) -> None:
        forwarded = _ForwardedRequest(client, request, pseudonym, now + self._config.request_us)
        self._up.put(_Upward(build, forwarded), now)

    # --- down

    def _handle_answer(self, message: Message, now: int) -> None:
        if isinstance(message, RelayDelivery):
            self._forward_delivery(message, now)
            return
        if not isinstance(message, RequestReply | Blinded):
            raise MalformedError("not for a proxy")
        forwarded = self._in_flight.pop(message.number, None)
        if forwarded is None:
            raise StaleError("an answer to a request that is no longer open")
        if isinstance(message, Blinded):
            self._finish_enrolment(forwarded, message, now)
            return
        code = ReplyCode(message.code)
        ended = isinstance(forwarded.request, Release) or code is ReplyCode.UNKNOWN
        if ended and forwarded.pseudonym:
            self._roster.end_lease(forwarded.pseudonym)
        self._queue_downward(forwarded.client, RequestReply(forwarded.request.number, code, message.proof), now)

    def _finish_enrolment(self, forwarded: _ForwardedRequest, blinded: Blinded, now: int) -> None:
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
            self._down.put(
                _Downward(client, RelayDelivery((name,), delivery.ticket, delivery.cipher, delivery.sealed)), now
            )

    def _refuse_request(self, client: Address, number: int, code: ReplyCode, now: int) -> None:
        self.refused[code.name] += 1
        self._queue_downward(client, RequestReply(number, code), now)

    def _queue_downward(self, client: Address, message: Message, now: int) -> None:
        self._down.put(_Downward(client, message), now)

    # --- inside

    def _flush(self, now: int) -> None:
        """Forward the batches that are due. Bodies are moved now, to the key that the subscriber has now."""
        for upward in self._up.take(now):
            self._send_up(upward, now)
        for downward in self._down.take(now):
            self._send_down(downward)

    def _send_up(self, upward: _Upward, now: int) -> None:
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
            self._refuse_request(forwarded.client, forwarded.request.number, ReplyCode.FULL, now)
            return
        self._number = (self._number + 1) % _NUMBERS
        try:
            with self.faults.refuse_exceptions():
                message = upward.build(self._number)
        except RemoteError as error:
            self._refuse(error)
            self._refuse_request(forwarded.client, forwarded.request.number, ReplyCode.MALFORMED, now)
            return
        self._in_flight[self._number] = forwarded
        self._post(server, message)

    def _send_down(self, downward: _Downward) -> None:
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


@dataclass(slots=True)
class _ForwardedRequest:
    """A request at the server, and the client it belongs to."""

    client: Address
    request: ClientRequest
    pseudonym: bytes
    until_us: int


@dataclass(slots=True)
class _Upward:
    """A message to the server, built when it leaves, under the number it leaves with."""

    build: Callable[[int], Message]
    forwarded: _ForwardedRequest | None = None


@dataclass(slots=True)
class _Downward:
    client: Address
    message: Message


_NUMBERS: Final = 1 << 32
