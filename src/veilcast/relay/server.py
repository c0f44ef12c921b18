"""The server: matches publications with leases by their tags, and knows only proxies.

Everything that the server confirms is on its disk: a lease, and a publication with the names of all leases it is for. A
server killed at any moment restarts with all of it, and the clients repeat what it did not confirm. A publication
without subscribers is not written.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from random import Random
from typing import Final, NamedTuple, TypeAlias

import msgspec

from veilcast.core.host import HostBase
from veilcast.core.timers import earliest
from veilcast.crypto.derive import digest
from veilcast.crypto.group import Multiply, multiply_each
from veilcast.decoding import MsgpackDecoder
from veilcast.errors import LocalError, MalformedError, RemoteError, StaleError, TamperedError
from veilcast.machine import Address, Entropy, Frame
from veilcast.relay.config import RelayServerConfig
from veilcast.relay.hardened import HardenedServerProfile
from veilcast.relay.limits import ProxyQuota
from veilcast.relay.mailboxes import Mailboxes
from veilcast.relay.matcher import ExactMatcher, FilterMatcher, IndexedLease, Matcher
from veilcast.relay.paper import PaperServerProfile
from veilcast.relay.profile import SealedPublication, ServerProfile
from veilcast.relay.transformation_key import ServerKeys
from veilcast.wire import decode
from veilcast.wire.base import Message
from veilcast.wire.relay import Blind, Blinded, Lease, Receipt, Release, ReplyCode, RequestReply, Resume, Submit


class LeaseRecord(msgspec.Struct, frozen=True, array_like=True, tag="lease", forbid_unknown_fields=True):
    """The record of a lease; `part` distinguishes several leases under one name."""

    name: bytes
    part: bytes
    proxy: str
    until_us: int
    tags: tuple[tuple[bytes, ...], ...]
    key: bytes


class OwnershipRecord(msgspec.Struct, frozen=True, array_like=True, tag="owner", forbid_unknown_fields=True):
    """The record that a server writes to show itself that the records are still its own."""


class PublicationRecord(msgspec.Struct, frozen=True, array_like=True, tag="note", forbid_unknown_fields=True):
    """The record of a publication that some subscriber has not acknowledged."""

    id: bytes
    cipher: bytes | None
    sealed: bytes
    names: tuple[bytes, ...]
    until_us: int
    proxy: str = ""
    """The proxy that submitted it; "" in records older than this field."""


StoredRecord: TypeAlias = LeaseRecord | PublicationRecord | OwnershipRecord


class _StoredLease(NamedTuple):
    """A lease in the server's memory."""

    record: int
    stamp: bytes
    """A digest of the record: an unchanged lease is not written again."""
    proxy: Address
    columns: int


class RelayServer(HostBase):
    """A `Machine`, with the notices of `Peers` and `Durable`. It asks for `Listen("proxy")`.

    `records` holds the records that earlier runs stored and did not settle: leases, and publications that some
    subscriber has not acknowledged. `refused` counts rejected input by error class or by the code of the answer.
    `matched` counts the subscribers of all publications.

    If the records are `shared`, another server may take them over while this one still runs, and this one then misses
    newer leases. So it confirms a publication without subscribers only after a write, which fails if the records are no
    longer its own (`node.postgres`).
    """

    def __init__(
        self,
        config: RelayServerConfig,
        keys: ServerKeys,
        rng: Random,
        entropy: Entropy,
        now: int,
        records: Mapping[int, bytes] | None = None,
        multiply: Multiply = multiply_each,
        *,
        shared: bool = False,
    ) -> None:
        super().__init__("proxy", records or {})
        self._config, self._shared = config, shared
        self._ownership: int | None = None
        """The number of the record of ownership, once there is one."""
        self._profile: ServerProfile
        self._matcher: Matcher
        if config.profile == "hardened":
            self._profile, self._matcher = (
                HardenedServerProfile(keys, entropy, multiply),
                ExactMatcher(config.columns_max),
            )
        else:
            self._profile, self._matcher = (
                PaperServerProfile(keys, entropy),
                FilterMatcher(config.filter_geometry, config.leases_max),
            )
        self._leases: dict[tuple[bytes, bytes], _StoredLease] = {}
        self._lease_quota, self._column_quota = ProxyQuota(config.leases_each), ProxyQuota(config.columns_each)
        self._parts: Counter[bytes] = Counter()
        self._expired: dict[bytes, None] = {}
        """Expired leases with publications still waiting under their names."""
        self.matched = 0
        self._mailboxes = Mailboxes(
            config.mailbox_limits, self._profile, self._post, self._records.settle, self._mailbox_emptied
        )
        self._restore(records or {}, now)

    # --- the driver

    def receive(self, data: bytes, source: Address, now: int) -> None:
        self._receive_with(lambda: self._hear(decode(data), source, now))

    def handle_timer(self, now: int) -> None:
        self.version += 1
        for name in self._matcher.expire(now):
            self._expire_lease(name)
        self._mailboxes.handle(now)

    def next_timer(self) -> int | None:
        return earliest(self._matcher.next_us(), self._mailboxes.next_us())

    def frames_to_send(self, now: int, limit: int) -> list[Frame]:
        # The backlog of a returning proxy may be long, and each copy is sealed for its subscriber: build it on demand.
        while len(self._frames) < limit and self._mailboxes.send_backlog():
            pass
        return super().frames_to_send(now, limit)

    def peer_up(self, peer: Address, now: int) -> None:
        self._mailboxes.proxy_up(peer)

    def peer_lost(self, peer: Address, now: int) -> None:
        self._mailboxes.proxy_lost(peer)

    # --- checkers

    def sizes(self) -> dict[str, int]:
        """Entries in each table."""
        return {
            "leases": len(self._leases),
            "mailboxes": len(self._mailboxes),
            "matched": len(self._matcher),
            "held": self._mailboxes.held,
            "waiting": self._mailboxes.longest_queue,
            "remembered": self._mailboxes.remembered,
        }

    @property
    def abandoned(self) -> int:
        """Publications that some subscriber never received, because space or time ran out."""
        return self._mailboxes.abandoned

    # --- what proxies ask for

    def _hear(self, message: Message, proxy: Address, now: int) -> None:
        try:
            with self.faults.refuse_exceptions():
                self._dispatch(message, proxy, now)
        except StaleError:
            raise  # It was delayed; its sender has repeated it by now.
        except RemoteError:
            if isinstance(message, Blind | Lease | Release | Resume | Submit):
                self._refuse_request(proxy, message.number, ReplyCode.MALFORMED)
            raise

    def _dispatch(self, message: Message, proxy: Address, now: int) -> None:
        match message:
            case Blind():
                self._post(proxy, Blinded(message.number, self._profile.answer_enrolment(message.sealed)))
            case Lease():
                self._lease(message, proxy, now)
            case Release():
                self._release(message, proxy)
            case Resume():
                self._resume(message, proxy)
            case Submit():
                self._submit(message, proxy, now)
            case Receipt():
                self._mailboxes.acknowledge(message.name, message.ticket)
            case _:
                raise MalformedError("not for a server")

    def _lease(self, lease: Lease, proxy: Address, now: int) -> None:
        key, bond, proof = self._profile.open_lease(lease)
        tags = self._profile.compute_tags(lease.subjects, bond)
        if not tags or not all(tags) or lease.until_us <= now:
            raise MalformedError("a lease that nothing could match")
        if self._config.profile == "hardened" and lease.until_us > now + self._config.lease_us_max:
            raise MalformedError("a lease that would never end")
        lease_record = LeaseRecord(lease.name, self._profile.lease_part(tags), proxy, lease.until_us, tags, key)
        data = _ENCODER.encode(lease_record)
        known, stamp = self._leases.get((lease_record.name, lease_record.part)), _stamp(data)
        if known is None or known.stamp != stamp:
            if not self._has_capacity(lease_record, known):
                self._refuse_request(proxy, lease.number, ReplyCode.FULL)
                return
            try:
                self._matcher.put(lease_record.name, lease_record.part, tags, lease_record.until_us)
            except LocalError:
                self._refuse_request(proxy, lease.number, ReplyCode.FULL)
                return
            record = self._records.keep(data, None if known is None else known.record)
            known = self._add_lease(lease_record, record, stamp)
        self._records.when_durable(known.record, now, lambda now: self._confirm(proxy, lease.number, proof))
        self._mailboxes.resume(lease_record.name, proxy)

    def _release(self, release: Release, proxy: Address) -> None:
        part = self._profile.lease_part(self._profile.compute_tags(release.subjects, None))
        self._matcher.remove(release.name, part)
        self._end_lease(release.name, part)
        self._confirm(proxy, release.number)

    def _resume(self, resume: Resume, proxy: Address) -> None:
        if resume.name not in self._mailboxes:
            self._refuse_request(proxy, resume.number, ReplyCode.UNKNOWN)
            return
        self._confirm(proxy, resume.number, self._profile.lease_proof(self._mailboxes.key_of(resume.name)))
        self._mailboxes.resume(resume.name, proxy)

    def _submit(self, submit: Submit, proxy: Address, now: int) -> None:
        publication, until_us, bond, proof = self._profile.open_submission(submit)
        if until_us <= now:
            raise StaleError("a publication under the tags of an expired epoch")
        record = self._mailboxes.record_of(publication.id)
        if record is None and not self._mailboxes.is_settled(publication.id):
            names = self._matcher.match(self._profile.compute_tags(submit.subjects, bond))
            self.matched += len(names)
            if not names:
                self._mailboxes.remember_settled(publication.id)
            elif not self._mailboxes.has_room(publication, proxy, len(names)):
                self._refuse_request(proxy, submit.number, ReplyCode.FULL)
                return
            else:
                record = self._store(publication, proxy, names, now)
        if record is None and self._shared:
            record = self._ownership = self._records.keep(_OWNED, self._ownership)
        if record is None:
            self._confirm(proxy, submit.number, proof)
        else:
            self._records.when_durable(record, now, lambda now: self._confirm(proxy, submit.number, proof))

    # --- inside

    def _store(self, publication: SealedPublication, proxy: Address, names: list[bytes], now: int) -> int:
        until_us = now + self._config.retention_us
        record = self._records.keep(_ENCODER.encode(PublicationRecord(*publication, tuple(names), until_us, proxy)))
        self._mailboxes.store(record, publication, proxy, names, until_us)
        self._records.when_durable(record, now, lambda now: self._mailboxes.deliver(record))
        return record

    def _has_capacity(self, lease_record: LeaseRecord, known: _StoredLease | None) -> bool:
        proxy, columns = Address(lease_record.proxy), len(lease_record.tags)
        if known is not None and known.proxy == proxy:
            return self._column_quota.fits(proxy, columns - known.columns)
        below_total = known is not None or len(self._leases) < self._config.leases_max
        return below_total and self._lease_quota.fits(proxy, 1) and self._column_quota.fits(proxy, columns)

    def _add_lease(self, lease_record: LeaseRecord, record: int, stamp: bytes) -> _StoredLease:
        key = (lease_record.name, lease_record.part)
        if (known := self._leases.get(key)) is None:
            self._parts[lease_record.name] += 1
        else:
            self._charge(known, -1)
        stored_lease = self._leases[key] = _StoredLease(
            record, stamp, Address(lease_record.proxy), len(lease_record.tags)
        )
        self._charge(stored_lease, 1)
        self._expired.pop(lease_record.name, None)
        self._mailboxes.open(lease_record.name, stored_lease.proxy, lease_record.key)
        return stored_lease

    def _charge(self, stored_lease: _StoredLease, sign: int) -> None:
        self._lease_quota.charge(stored_lease.proxy, sign)
        self._column_quota.charge(stored_lease.proxy, sign * stored_lease.columns)

    def _expire_lease(self, name: bytes) -> None:
        """A lease has expired; its waiting publications stay for their retention time."""
        if self._mailboxes.is_empty(name):
            self._end_lease(name, b"")
        else:
            self._expired[name] = None

    def _mailbox_emptied(self, name: bytes) -> None:
        if name in self._expired:
            self._end_lease(name, b"")

    def _end_lease(self, name: bytes, part: bytes) -> None:
        """Forget a lease, or a part of one; with the last part, also what waits under its name."""
        known = self._leases.pop((name, part), None)
        if known is None:
            return
        self._records.settle(known.record)
        self._charge(known, -1)
        self._parts[name] -= 1
        if not self._parts[name]:
            del self._parts[name]
            self._expired.pop(name, None)
            self._mailboxes.close(name)

    def _restore(self, records: Mapping[int, bytes], now: int) -> None:
        entries = [(record, decode_server_record(data)) for record, data in sorted(records.items())]
        current: list[IndexedLease] = []
        for record, entry in entries:
            if isinstance(entry, OwnershipRecord):
                self._ownership = record
            if isinstance(entry, LeaseRecord):
                self._add_lease(entry, record, _stamp(records[record]))
                if entry.until_us > now:
                    current.append(IndexedLease(entry.name, entry.part, entry.tags, entry.until_us))
                else:
                    self._expired[entry.name] = None
        self._matcher.put_many(current)
        for record, entry in entries:
            if isinstance(entry, PublicationRecord):
                publication = SealedPublication(entry.id, entry.cipher, entry.sealed)
                self._mailboxes.store(record, publication, Address(entry.proxy), entry.names, entry.until_us)
                self._mailboxes.deliver(record)
        for name in [name for name in self._expired if self._mailboxes.is_empty(name)]:
            self._end_lease(name, b"")

    def _confirm(self, proxy: Address, number: int, proof: bytes | None = None) -> None:
        self._post(proxy, RequestReply(number, ReplyCode.DONE, proof))

    def _refuse_request(self, proxy: Address, number: int, code: ReplyCode) -> None:
        self.refused[code.name] += 1
        self._post(proxy, RequestReply(number, code))


def _stamp(data: bytes) -> bytes:
    return digest(data, purpose=b"vc/relay-stamp", size=16)


def decode_server_record(data: bytes) -> StoredRecord:
    entry: StoredRecord = _DECODER.decode(data)
    return entry


_ENCODER: Final = msgspec.msgpack.Encoder()
_DECODER: Final = MsgpackDecoder(StoredRecord, TamperedError, "a record of the server's is damaged")
_OWNED: Final = _ENCODER.encode(OwnershipRecord())
