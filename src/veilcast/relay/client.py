"""The client: a member that publishes and subscribes through proxies. The proxies know the member; the server does not.

The client stores only its publications (`core.outbox`). Each publication is written to disk, leaves once it is durable,
and is sent again until the server has stored it. After a restart the client announces its subscriptions again, under
the same lease names. The client acknowledges a delivery to the server when the owner has acknowledged the notification.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping, Sequence
from functools import partial
from random import Random
from typing import Final

from veilcast.authority.keyring import Keyring, TopicKeys
from veilcast.core.inbox import Inbox
from veilcast.core.member import OutboxMember, first_event
from veilcast.core.outbox import Outbox, PendingPublication, Sendings, publication_id
from veilcast.core.timers import earliest
from veilcast.crypto.derive import derive
from veilcast.crypto.group import Multiply, Scalar, multiply_each
from veilcast.errors import LocalError, MalformedError, RemoteError, StaleError
from veilcast.machine import Address, Delay, Disconnect, Entropy, Event, Frame, Note
from veilcast.relay.config import PROXIES_MAX, RelayClientConfig
from veilcast.relay.hardened import HardenedClientProfile
from veilcast.relay.leases import SubscriptionLeases, encode_interest
from veilcast.relay.pacer import make_pacer, unpack_frame
from veilcast.relay.paper import PaperClientProfile
from veilcast.relay.profile import ClientProfile
from veilcast.relay.proxy_connection import ProxyConnection
from veilcast.relay.transformation_key import ServerPublicKey
from veilcast.topics import Conjunction, Schema
from veilcast.wire import decode, encode
from veilcast.wire.base import Message
from veilcast.wire.relay import Receipt, RelayDelivery, ReplyCode, RequestReply


class RelayClient(OutboxMember):
    """A `NodeMember` (`node.modes`), with the notices of `Peers` and `Durable`.

    The client publishes through the first of `proxies`. It subscribes through the others, or through the only one. Each
    subscription goes through `copies` of them, which a key of the client's chooses: always the same ones. `records`
    holds the records that earlier runs stored and did not settle: publications. `refused` counts rejected input by
    error class; `excess` counts deliveries that no subscription had asked for.
    """

    def __init__(
        self,
        config: RelayClientConfig,
        keyring: Keyring,
        server: ServerPublicKey,
        proxies: Sequence[Address],
        rng: Random,
        entropy: Entropy,
        now: int,
        records: Mapping[int, bytes] | None = None,
        multiply: Multiply = multiply_each,
    ) -> None:
        if not 1 <= len(proxies) <= PROXIES_MAX:
            raise LocalError(f"a client needs 1 to {PROXIES_MAX} proxies: one for publishing, others for subscribing")
        super().__init__()
        self._config = config
        hardened = config.profile == "hardened"
        self._profile: ClientProfile = (
            HardenedClientProfile(keyring, server, entropy, multiply, config.lead_epochs)
            if hardened
            else PaperClientProfile(keyring, entropy)
        )
        self._pacer = make_pacer(config, rng)
        self._connections = {
            proxy: ProxyConnection(config, self._profile, server, proxy, self._post, rng, entropy, now)
            for proxy in dict.fromkeys(proxies)
        }
        self._publish_connection = self._connections[proxies[0]]
        self._leases = {
            proxy: SubscriptionLeases(config, self._profile, self._connections[proxy], rng, now)
            for proxy in dict.fromkeys(proxies[1:] or proxies)
        }
        """The leases at each proxy for subscribing."""
        self._proxy_key = derive(keyring.membership.link, b"vc/relay-proxies")
        self._inbox = Inbox(unread_max=config.unread_max, seen_max=config.seen_max, again_us=config.deliver_again_us)
        self._outbox = Outbox(entropy, records or {}, config.records_max)
        self._submissions: Sendings[int] = Sendings(config.wait_us)
        """Request numbers of each durable publication that the server has not confirmed, by record."""
        self._events: deque[Event] = deque()
        self._send_unsettled(now)

    # --- the owner

    def withdraw(self, record: int, now: int) -> None:
        for number in self._submissions.withdraw(record):
            self._publish_connection.cancel(number, now)
        self._outbox.drop(record)

    def unsubscribe(self, number: int, now: int) -> None:
        held = [leases for leases in self._leases.values() if number in leases]
        if not held:
            raise LocalError(f"there is no subscription {number}")
        for leases in held:
            leases.remove(number, now)
        self._send_receipts(self._inbox.end_subscription(number), now)
        self.version += 1

    def acknowledge(self, note: bytes, now: int) -> None:
        self._send_receipts(self._inbox.acknowledge(note), now)
        self.version += 1

    # --- the driver

    def receive(self, data: bytes, source: Address, now: int) -> None:
        self._receive_with(lambda: self._receive_frame(data, source, now))

    def handle_timer(self, now: int) -> None:
        if self._pacer is not None:
            self._frames += self._pacer.handle(now)
        for connection in self._connections.values():
            connection.handle(now)
        for leases in self._leases.values():
            leases.handle(now)
        self._inbox.handle(now)
        self._submissions.handle(now)
        self.version += 1

    def next_timer(self) -> int | None:
        connections = (connection.next_us() for connection in self._connections.values())
        pacer_us = None if self._pacer is None else self._pacer.next_us()
        leases = (leases.next_us() for leases in self._leases.values())
        return earliest(pacer_us, *connections, *leases, self._inbox.next_us(), self._submissions.next_us())

    def next_event(self) -> Event | None:
        if self._events:
            return self._events.popleft()
        if (overdue := self._submissions.next_event()) is not None:
            return overdue
        for leases in self._leases.values():
            if leases.notices:
                return leases.notices.pop(0)
        connections = (connection.next_event for connection in self._connections.values())
        return first_event(*connections, self._outbox.next_event, self._inbox.next_delivery)

    def peer_up(self, peer: Address, now: int) -> None:
        if (connection := self._connections.get(peer)) is not None:
            if self._pacer is not None:
                self._pacer.stream_up(peer, now)
            connection.peer_up(now)
            if (leases := self._leases.get(peer)) is not None:
                leases.proxy_returned(now)

    def peer_lost(self, peer: Address, now: int) -> None:
        if (connection := self._connections.get(peer)) is not None:
            if self._pacer is not None:
                self._pacer.stream_down(peer)
            connection.peer_lost(now)

    # --- what an owner may want to know

    def refusals(self) -> dict[ReplyCode, int]:
        """Requests that the relay has refused and that the client still repeats, by reason."""
        refused = sum((connection.refused_requests for connection in self._connections.values()), Counter[ReplyCode]())
        return {code: count for code, count in sorted(refused.items()) if count}

    def silent_us(self, now: int) -> int:
        """How long the relay has owed an answer while its proxy is up, in microseconds; 0 within the usual time."""
        return max(connection.silent_us(now) for connection in self._connections.values())

    def delay(self, now: int) -> Delay | None:
        return self._publish_connection.delay(now) if len(self._outbox) else None

    # --- checkers

    def sizes(self) -> dict[str, int]:
        """Entries in each table."""
        return {
            "requests": sum(map(len, self._connections.values())),
            "subscriptions": len(set().union(*self._leases.values())),
            "leases": sum(leases.lease_count for leases in self._leases.values()),
            "inbox": len(self._inbox),
            "seen": self._inbox.seen_count,
            "pending": len(self._outbox),
            "backlog": 0 if self._pacer is None else len(self._pacer),
        }

    # --- inside

    def _schema_of(self, topic: str, now: int) -> Schema:
        return self._topic_keys(topic, now).record.schema

    def _check_sendable(self, pending: PendingPublication, now: int) -> None:
        self._profile.check_publication(self._topic_keys(pending.topic, now), pending)

    def _add_subscription(self, number: int, topic: str, interest: Conjunction, now: int) -> None:
        chosen = self._choose_proxies(encode_interest(topic, interest))
        for place, proxy in enumerate(chosen):
            self._leases[proxy].add(number, topic, interest, now, is_first=not place)

    def _topic_keys(self, topic: str, now: int) -> TopicKeys:
        return self._profile.topic_keys(topic, self._profile.lease_periods(now, 0)[0], now)

    def _send(self, record: int, pending: PendingPublication, now: int) -> None:
        def build(number: int, key: Scalar, now: int) -> Message:
            period = self._profile.lease_periods(now, 0)[0]
            return self._profile.build_submit(
                number, period, self._profile.topic_keys(pending.topic, period, now), pending, key
            )

        def on_done(now: int) -> None:
            self._submissions.finish(record, number)
            self._outbox.settle(record, pending)

        number = self._publish_connection.request(now, build, on_done, proof=self._profile.submit_proof(pending))
        self._submissions.add(record, number, pending.content.publication, now)

    def _receive_frame(self, data: bytes, source: Address, now: int) -> None:
        connection = self._connections.get(source)
        if connection is None:
            raise StaleError("not a proxy of this client")
        for each in unpack_frame(self._pacer, data, source, lambda: self._disconnect(source, now)):
            self._receive_with(partial(self._hear, each, connection, now))

    def _hear(self, data: bytes, connection: ProxyConnection, now: int) -> None:
        self._dispatch(decode(data), connection, now)

    def _disconnect(self, proxy: Address, now: int) -> None:
        self._events.append(Disconnect(proxy))
        self.peer_lost(proxy, now)

    def _dispatch(self, message: Message, connection: ProxyConnection, now: int) -> None:
        match message:
            case RequestReply():
                connection.handle_reply(message, now)
            case RelayDelivery():
                self._deliver(message, connection, now)
            case _:
                raise MalformedError("not for a client")

    def _deliver(self, delivery: RelayDelivery, connection: ProxyConnection, now: int) -> None:
        if connection.key is None:
            return  # Sealed under a key of an earlier run: the server sends it again on request.
        lease_name = delivery.names[0]
        stub = (connection.proxy.encode() + _STUB_END + lease_name, delivery.ticket)
        leases = self._leases[connection.proxy].leases_named(lease_name) if connection.proxy in self._leases else []
        if not leases:
            self._send_receipts([stub], now)
            return
        try:
            with self.faults.refuse_exceptions():
                pending = self._profile.open_delivery(
                    delivery, leases[0].interest.topic, leases[0].period, connection.key, now
                )
                publication = pending.content.publication
                numbers = [
                    n
                    for lease in leases
                    if lease.interest.interest.matches(publication)
                    for n in lease.interest.numbers
                ]
                note = Note(publication_id(pending), publication)
        except RemoteError:
            self._send_receipts([stub], now)
            raise
        self.excess += not numbers
        if self._inbox.put(numbers, note, stub, now):
            self._send_receipts([stub], now)

    def _send_receipts(self, stubs: Sequence[tuple[bytes, bytes]], now: int) -> None:
        for stub, ticket in stubs:
            proxy, _, lease_name = stub.partition(_STUB_END)
            self._connections[Address(proxy.decode())].send_if_up(Receipt(lease_name, ticket), now)

    def _choose_proxies(self, interest: bytes) -> list[Address]:
        """The proxies that carry a subscription: chosen for each alike, and the same in every life of the client."""
        ranked = sorted(
            self._leases,
            key=lambda proxy: derive(self._proxy_key, b"vc/relay-choice", interest, proxy.encode()).reveal(),
        )
        return ranked[: self._config.copies]

    def _post(self, peer: Address, message: Message, now: int) -> None:
        data = encode(message)
        if self._pacer is None:
            self._frames.append(Frame(peer, data))
        else:
            self._pacer.put(peer, data)


_STUB_END: Final = b"\0"
"""Between a proxy's address, which has no such byte, and the name of a lease."""
