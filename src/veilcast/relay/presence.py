"""Presence: what a proxy holds for its clients, so that the server does not see who is there.

Property: what the server gets about a lease, and when, does not depend on whether its client is there, nor on the
client's other leases. Exceptions are under 4.
Assumption: the server does not see the wires between clients and proxy.

1. A client hands over the leases of coming periods in advance. The proxy sends each to the server at a moment drawn in
   a window before its period, the same window for all clients (`LeaseAhead`). It confirms to the server what arrives
   under each pseudonym, once it is on its own disk, and holds it until the client has it.
2. From then on the proxy asks the server about each lease at random intervals. Each interval is exponential and drawn
   when the last one ends: the times of all requests are a Poisson process for each lease, and answers change nothing.
   A server that has lost a lease is sent it again, which needs no client.
3. A release never reaches the server. The lease ends with its period, and what comes for it is confirmed and dropped.
4. The server still sees a lease that the proxy gets after its window: from a new subscription, or from a client that
   was away for longer than its leases reached. If deliveries for an absent client exceed its quota, the server keeps
   the rest and sees that.

The proxy gets no request that it would not have got otherwise, and learns nothing new. But it now holds deliveries on
its disk, sealed for their subscribers: if the disk is lost, so are they.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from random import Random
from typing import TypeAlias

from msgspec.structs import replace

from veilcast.core.durable_records import DurableRecords, WhenDurable
from veilcast.core.timers import Timers, draw_exponential
from veilcast.machine import Address
from veilcast.relay.config import RelayProxyConfig
from veilcast.relay.mailboxes import Mailboxes
from veilcast.relay.profile import DeliveryTarget, SealedPublication
from veilcast.relay.roster import ClientRoster, HeldDelivery, LeasePseudonym, decode_roster_record, encode_record
from veilcast.wire import decode, encode
from veilcast.wire.base import Message
from veilcast.wire.relay import Lease, LeaseAhead, RelayDelivery, ReplyCode, RequestReply, Resume, Subjects

BuildMessage: TypeAlias = Callable[[int], Message]
"""Build the message with this number."""


class HeldLeases:
    """The leases of all clients, from their arrival at the proxy until the roster forgets them: bounded by the roster.

    `ask_server` sends a request about a pseudonym to the server; `answer` answers a request of a client.
    """

    def __init__(
        self,
        config: RelayProxyConfig,
        roster: ClientRoster,
        durable: DurableRecords,
        rng: Random,
        now: int,
        ask_server: Callable[[bytes, BuildMessage, int], None],
        answer: Callable[[Address, RequestReply, int], None],
    ) -> None:
        self._config, self._roster, self._durable, self._rng = config, roster, durable, rng
        self._ask_server, self._answer = ask_server, answer
        self._waiting: dict[bytes, int] = {}
        """For each pseudonym, the number of the client's request that waits for the server's answer."""
        self._refused: dict[bytes, ReplyCode] = {}
        """How the server has refused a lease, by pseudonym."""
        self._timers: Timers[bytes] = Timers()
        for entry in roster.lease_entries():
            if entry.lease:
                self._timers.set(entry.pseudonym, max(entry.submit_us, now + self._draw_pause_us(entry)))

    def accept(
        self, pseudonym: bytes, record: int, lease: Lease | LeaseAhead, move: Callable[[Subjects], Subjects], now: int
    ) -> None:
        """Take a lease from its client. `record` is that of its pseudonym; `move` raises for subjects that are none."""
        entry = self._roster.lease_entry(pseudonym)
        if entry is None:
            return
        if not entry.lease:
            submit_us = now
            if isinstance(lease, LeaseAhead):
                first_us, last_us = (max(now, min(each, lease.until_us)) for each in (lease.from_us, lease.to_us))
                submit_us = first_us + self._rng.randrange(max(0, last_us - first_us) + 1)
            moved = Lease(0, pseudonym, lease.until_us, move(lease.subjects), lease.sealed)
            record = self._roster.change_lease(replace(entry, lease=encode(moved), submit_us=submit_us))
            self._durable.when_durable(record, now, lambda now: self._timers.set(pseudonym, max(now, submit_us)))
        elif entry.is_released or (isinstance(lease, Lease) and now < entry.submit_us):
            sooner_us = min(now, entry.submit_us) if isinstance(lease, Lease) else entry.submit_us
            record = self._roster.change_lease(replace(entry, is_released=False, submit_us=sooner_us))
            self._timers.set_if_earlier(pseudonym, max(now, sooner_us))
        self._durable.when_durable(record, now, lambda now: self._answer_lease(pseudonym, lease, now))

    def resume(self, pseudonym: bytes, number: int, now: int) -> None:
        """Tell the client whether the server has the lease; of one that is over, that deliveries are sent."""
        if (entry := self._roster.lease_entry(pseudonym)) is None:
            return
        if not entry.lease or entry.is_released:
            self._reply(entry, number, ReplyCode.UNKNOWN, now)
        else:
            is_known = bool(entry.proof) or now >= entry.until_us
            self._reply(entry, number, ReplyCode.DONE if is_known else ReplyCode.HELD, now)

    def release(self, pseudonym: bytes, now: int) -> None:
        """The client has ended the lease. One that the server has not been sent is forgotten at once."""
        if (entry := self._roster.lease_entry(pseudonym)) is None:
            return
        self._waiting.pop(pseudonym, None)
        if now < entry.submit_us:
            self.forget(pseudonym)
            self._roster.end_lease(pseudonym)
        else:
            self._roster.change_lease(replace(entry, is_released=True))

    def forget(self, pseudonym: bytes) -> None:
        self._timers.cancel(pseudonym)
        self._waiting.pop(pseudonym, None)
        self._refused.pop(pseudonym, None)

    def handle_answer(self, pseudonym: bytes, reply: RequestReply, now: int) -> None:
        """The server's answer to a lease, or to a question about one."""
        if (entry := self._roster.lease_entry(pseudonym)) is None:
            return
        code, number = ReplyCode(reply.code), self._waiting.get(pseudonym)
        if code is ReplyCode.UNKNOWN:
            entry = self._set_proof(entry, b"")
            if now < entry.until_us:
                self._timers.set_if_earlier(pseudonym, now + self._draw_pause_us(entry))
            else:
                self._timers.cancel(pseudonym)
            return
        if code is ReplyCode.DONE and reply.proof is not None:
            entry = self._set_proof(entry, reply.proof)
        self._refused.pop(pseudonym, None)
        if code in (ReplyCode.FULL, ReplyCode.MALFORMED):
            self._refused[pseudonym] = code
            self._timers.set(pseudonym, now + draw_exponential(self._rng, self._config.poll_us))
        if number is not None:
            del self._waiting[pseudonym]
            self._reply(entry, number, code, now)

    def next_us(self) -> int | None:
        return self._timers.next_us()

    def handle(self, now: int) -> None:
        """Send the leases that are due, and ask about those that the server has. The times do not depend on answers."""
        for pseudonym in self._timers.pop_due(now):
            entry = self._roster.lease_entry(pseudonym)
            if entry is None:
                continue
            self._timers.set(pseudonym, now + 1 + self._draw_pause_us(entry))
            self._ask_server(pseudonym, _question_about(entry, now), now)

    def _draw_pause_us(self, entry: LeasePseudonym) -> int:
        """Of a lease that the server has not confirmed, half of the mean is for its answer."""
        if entry.proof:
            return draw_exponential(self._rng, self._config.poll_us)
        half_us = self._config.retry_us // 2
        return half_us + draw_exponential(self._rng, half_us)

    def _set_proof(self, entry: LeasePseudonym, proof: bytes) -> LeasePseudonym:
        if proof != entry.proof:
            entry = replace(entry, proof=proof)
            self._roster.change_lease(entry)
        return entry

    def _answer_lease(self, pseudonym: bytes, lease: Lease | LeaseAhead, now: int) -> None:
        if (entry := self._roster.lease_entry(pseudonym)) is None:
            return
        if entry.proof:
            self._reply(entry, lease.number, ReplyCode.DONE, now)
        elif isinstance(lease, LeaseAhead):
            self._reply(entry, lease.number, ReplyCode.HELD, now)
        elif pseudonym in self._refused:
            self._reply(entry, lease.number, self._refused[pseudonym], now)
        else:
            self._waiting[pseudonym] = lease.number

    def _reply(self, entry: LeasePseudonym, number: int, code: ReplyCode, now: int) -> None:
        proof = entry.proof if code is ReplyCode.DONE and entry.proof else None
        self._answer(Address(entry.client), RequestReply(number, code, proof), now)


class HeldMail:
    """The deliveries that clients have not acknowledged. Bounded by `RelayProxyConfig.mailbox_limits`, and by
    `retention_us` in time.

    `outgoing` holds deliveries, each to its client, until the proxy takes them.
    """

    def __init__(
        self,
        config: RelayProxyConfig,
        roster: ClientRoster,
        durable: DurableRecords,
        records: Mapping[int, bytes],
    ) -> None:
        self._retention_us, self._roster, self._durable = config.retention_us, roster, durable
        self.outgoing: list[tuple[Address, RelayDelivery]] = []
        self._mailboxes = Mailboxes(
            config.mailbox_limits,
            _ServersTickets(),
            lambda client, delivery: self.outgoing.append((client, delivery)),
            durable.settle,
            self.forget,
        )
        for record, data in sorted(records.items()):
            if isinstance(entry := decode_roster_record(data), HeldDelivery):
                owner = roster.find_lease(entry.pseudonym)
                if owner is None:
                    durable.settle(record)
                else:
                    self._store(record, owner[0], entry)
                    self._mailboxes.deliver(record)

    def __len__(self) -> int:
        return self._mailboxes.held

    @property
    def remembered(self) -> int:
        return self._mailboxes.remembered

    def accept(self, client: Address, delivery: RelayDelivery, now: int, confirm: WhenDurable) -> bool:
        """Take a delivery for this client, and `confirm` it once it is durable; False if there is no room for it."""
        pseudonym, ticket = delivery.names[0], delivery.ticket
        publication = SealedPublication(ticket, None, delivery.sealed)
        entry = self._roster.lease_entry(pseudonym)
        if self._mailboxes.is_settled(ticket) or (entry is not None and entry.is_released):
            confirm(now)
        elif (record := self._mailboxes.record_of(ticket)) is not None:
            self._durable.when_durable(record, now, confirm)
        elif not self._mailboxes.has_room(publication, client, 1):
            return False
        else:
            held = HeldDelivery(pseudonym, ticket, delivery.sealed, now + self._retention_us)
            record = self._durable.keep(encode_record(held))
            self._store(record, client, held)
            self._durable.when_durable(record, now, self._deliver_then(record, confirm))
        return True

    def acknowledge(self, pseudonym: bytes, ticket: bytes) -> None:
        self._mailboxes.acknowledge(pseudonym, ticket)

    def resume(self, pseudonym: bytes, client: Address) -> None:
        """The client may have missed what was sent to it."""
        if pseudonym in self._mailboxes:
            self._mailboxes.resume(pseudonym, client)

    def forget(self, pseudonym: bytes) -> None:
        """Drop what is held under this pseudonym."""
        if pseudonym in self._mailboxes:
            self._mailboxes.close(pseudonym)

    def client_up(self, client: Address) -> None:
        self._mailboxes.proxy_up(client)

    def client_lost(self, client: Address) -> None:
        self._mailboxes.proxy_lost(client)

    def send_backlog(self) -> bool:
        """Send to one more lease of a client that is back; False if none is left."""
        return self._mailboxes.send_backlog()

    def next_us(self) -> int | None:
        return self._mailboxes.next_us()

    def handle(self, now: int) -> None:
        self._mailboxes.handle(now)

    def _store(self, record: int, client: Address, held: HeldDelivery) -> None:
        self._mailboxes.open(held.pseudonym, client, b"")
        publication = SealedPublication(held.ticket, None, held.sealed)
        self._mailboxes.store(record, publication, client, [held.pseudonym], held.until_us)

    def _deliver_then(self, record: int, confirm: WhenDurable) -> WhenDurable:
        def on_durable(now: int) -> None:
            self._mailboxes.deliver(record)
            confirm(now)

        return on_durable


class _ServersTickets:
    """A delivery keeps the server's ticket, which is also its id here."""

    def ticket(self, name: bytes, publication_id: bytes) -> bytes:
        return publication_id

    def build_deliveries(
        self, publication: SealedPublication, targets: Sequence[DeliveryTarget]
    ) -> Iterator[RelayDelivery]:
        for target in targets:
            yield RelayDelivery((target.name,), target.ticket, None, publication.sealed)


def _question_about(entry: LeasePseudonym, now: int) -> BuildMessage:
    """A `Resume` for a lease that the server has confirmed or that is over, otherwise the lease itself."""

    def build(number: int) -> Message:
        if entry.proof or now >= entry.until_us:
            return Resume(number, entry.pseudonym)
        lease = decode(entry.lease)
        assert isinstance(lease, Lease)
        return replace(lease, number=number)

    return build
