"""The roster of a proxy: its clients, with the key that moves their messages, and the pseudonyms of their leases.

Every entry is durable before anything depends on it. A restarted proxy must know its clients' keys: otherwise all
clients would have to enrol again. It must also know the owner of each pseudonym: otherwise it could not deliver what
the server holds.

In `hardened` every lease has its own random pseudonym, which ends with the lease; in `paper` every client has one for
ever.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, TypeAlias

import msgspec

from veilcast.core.durable_records import DurableRecords, WhenDurable
from veilcast.core.timers import Timers
from veilcast.crypto.group import Scalar
from veilcast.decoding import MsgpackDecoder
from veilcast.errors import MalformedError, TamperedError
from veilcast.machine import Address, Entropy
from veilcast.relay.config import RelayProxyConfig
from veilcast.wire.geometry import LEASE_NAME


class EnrolledClient(msgspec.Struct, frozen=True, array_like=True, tag="client", forbid_unknown_fields=True):
    """The record of a client; `pseudonym` is the paper's, otherwise empty."""

    client: str
    transformation: bytes
    pseudonym: bytes


class LeasePseudonym(msgspec.Struct, frozen=True, array_like=True, tag="lease", forbid_unknown_fields=True):
    """The record of a lease. The last four fields are for a lease that the proxy holds (`presence`)."""

    client: str
    name: bytes
    pseudonym: bytes
    until_us: int
    lease: bytes = b""
    """The lease as the server gets it, or empty."""
    submit_us: int = 0
    """When it leaves for the server."""
    proof: bytes = b""
    """The server's proof that it has the lease, or empty."""
    is_released: bool = False
    """Whether the client has ended it."""


class HeldDelivery(msgspec.Struct, frozen=True, array_like=True, tag="mail", forbid_unknown_fields=True):
    """The record of a delivery that its client has not acknowledged."""

    pseudonym: bytes
    ticket: bytes
    sealed: bytes
    until_us: int


@dataclass(slots=True)
class _RosterClient:
    record: int
    transformation: Scalar
    pseudonym: bytes
    leases: dict[bytes, tuple[int, LeasePseudonym]] = field(default_factory=dict)


class ClientRoster:
    """Bounded: `clients_max` clients and `leases_each` leases of each; expired leases are forgotten.

    When the roster is full, a new client replaces the longest-enrolled client without leases. That client enrols again
    if it comes back. Otherwise clients that have left would fill a proxy in time.
    """

    def __init__(
        self,
        config: RelayProxyConfig,
        entropy: Entropy,
        durable: DurableRecords,
        records: Mapping[int, bytes],
        *,
        one_pseudonym_per_client: bool,
    ) -> None:
        self._config, self._entropy, self._durable, self._one_pseudonym_per_client = (
            config,
            entropy,
            durable,
            one_pseudonym_per_client,
        )
        self._clients: dict[Address, _RosterClient] = {}
        self._known: dict[Address, tuple[int, bytes]] = {}
        """Record and pseudonym of each client, including clients that are not durable yet."""
        self._leases_by_pseudonym: dict[bytes, tuple[Address, bytes]] = {}
        self._timers: Timers[bytes] = Timers()
        entries = [(record, decode_roster_record(data)) for record, data in sorted(records.items())]
        for record, entry in entries:
            if isinstance(entry, EnrolledClient):
                self._add_client(record, entry)
        for record, entry in entries:
            if isinstance(entry, LeasePseudonym) and Address(entry.client) in self._clients:
                self._add_lease(record, entry)

    def __len__(self) -> int:
        return len(self._known)

    def __contains__(self, client: Address) -> bool:
        return client in self._clients

    @property
    def leases(self) -> int:
        return sum(len(client.leases) for client in self._clients.values())

    def transformation(self, client: Address) -> Scalar:
        return self._clients[client].transformation

    def enrol(self, client: Address, transformation: Scalar, now: int, then: WhenDurable) -> bool:
        """Register the client with this key once the record is durable; False if the roster is full."""
        known = self._known.get(client)
        if known is None and len(self._known) >= self._config.clients_max and not self._make_room():
            return False
        record, pseudonym = known or (None, self._draw_pseudonym() if self._one_pseudonym_per_client else b"")
        entry = EnrolledClient(client, transformation.reveal(), pseudonym)
        record = self._durable.keep(_ENCODER.encode(entry), record)
        self._known[client] = (record, pseudonym)

        def stored(now: int) -> None:
            self._add_client(record, entry)
            then(now)

        self._durable.when_durable(record, now, stored)
        return True

    def pseudonym_of(self, client: Address, name: bytes) -> bytes | None:
        """The pseudonym of a lease, or None if it is unknown."""
        known = self._clients[client]
        if self._one_pseudonym_per_client:
            return known.pseudonym
        return known.leases[name][1].pseudonym if name in known.leases else None

    def assign_pseudonym(self, client: Address, name: bytes, until_us: int, now: int) -> tuple[int, bytes] | None:
        """A pseudonym for a lease, and the record that must be durable first; None if the client has too many
        leases."""
        known = self._clients[client]
        if self._one_pseudonym_per_client:
            return known.record, known.pseudonym
        held = known.leases.get(name)
        if held is not None and held[1].until_us == until_us:
            return held[0], held[1].pseudonym
        if held is None and len(known.leases) >= self._config.leases_each:
            return None
        entry = LeasePseudonym(client, name, self._draw_pseudonym() if held is None else held[1].pseudonym, until_us)
        record = self._durable.keep(_ENCODER.encode(entry), None if held is None else held[0])
        self._add_lease(record, entry)
        return record, entry.pseudonym

    def lease_entry(self, pseudonym: bytes) -> LeasePseudonym | None:
        """The record of the lease with this pseudonym; None in `paper`."""
        client, name = self._leases_by_pseudonym.get(pseudonym, (Address(""), b""))
        known = self._clients.get(client)
        return known.leases[name][1] if known is not None and name in known.leases else None

    def lease_entries(self) -> list[LeasePseudonym]:
        return [entry for client in self._clients.values() for _, entry in client.leases.values()]

    def change_lease(self, entry: LeasePseudonym) -> int:
        """Write another record in place of that of the same lease. Returns its number."""
        leases = self._clients[Address(entry.client)].leases
        record = self._durable.keep(_ENCODER.encode(entry), leases[entry.name][0])
        leases[entry.name] = (record, entry)
        return record

    def find_lease(self, pseudonym: bytes) -> tuple[Address, bytes] | None:
        """The client and the client's name for the lease; None if the pseudonym is unknown or expired."""
        return self._leases_by_pseudonym.get(pseudonym)

    def end_lease(self, pseudonym: bytes) -> None:
        """Forget the lease of this pseudonym. The paper's pseudonyms stay with their clients."""
        client, name = self._leases_by_pseudonym.get(pseudonym, ("", b""))
        known = self._clients.get(Address(client))
        if known is not None and name in known.leases:
            record, _ = known.leases.pop(name)
            del self._leases_by_pseudonym[pseudonym]
            self._timers.cancel(pseudonym)
            self._durable.settle(record)

    def next_us(self) -> int | None:
        return self._timers.next_us()

    def handle(self, now: int) -> list[bytes]:
        """Forget what has expired. Returns the pseudonyms."""
        expired = self._timers.pop_due(now)
        for pseudonym in expired:
            self.end_lease(pseudonym)
        return expired

    def _make_room(self) -> bool:
        """Evict a client without leases. Not in `paper`: a client that was away comes back to its pseudonym."""
        idle = (
            client for client, known in self._clients.items() if not known.leases and not self._one_pseudonym_per_client
        )
        evicted = next(idle, None)
        if evicted is None:
            return False
        del self._clients[evicted]
        self._durable.settle(self._known.pop(evicted)[0])
        return True

    def _add_client(self, record: int, entry: EnrolledClient) -> None:
        client, key = Address(entry.client), _scalar(entry.transformation)
        known = self._clients.get(client)
        if known is not None:
            known.transformation = key
            return
        self._known[client] = (record, entry.pseudonym)
        self._clients[client] = _RosterClient(record, key, entry.pseudonym)
        if entry.pseudonym:
            self._leases_by_pseudonym[entry.pseudonym] = (client, bytes(LEASE_NAME))

    def _add_lease(self, record: int, entry: LeasePseudonym) -> None:
        self._clients[Address(entry.client)].leases[entry.name] = (record, entry)
        self._leases_by_pseudonym[entry.pseudonym] = (Address(entry.client), entry.name)
        self._timers.set(entry.pseudonym, entry.until_us + self._config.retention_us)

    def _draw_pseudonym(self) -> bytes:
        return self._entropy(LEASE_NAME)


def encode_record(entry: RosterRecord) -> bytes:
    return _ENCODER.encode(entry)


def decode_roster_record(data: bytes) -> RosterRecord:
    entry: RosterRecord = _DECODER.decode(data)
    return entry


RosterRecord: TypeAlias = EnrolledClient | LeasePseudonym | HeldDelivery


def _scalar(data: bytes) -> Scalar:
    try:
        return Scalar(data)
    except MalformedError as error:
        raise TamperedError(_DAMAGED) from error


_DAMAGED: Final = "a record of the proxy's clients is damaged"
_ENCODER: Final = msgspec.msgpack.Encoder()
_DECODER: Final = MsgpackDecoder(RosterRecord, TamperedError, _DAMAGED)
