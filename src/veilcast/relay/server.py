"""The server: matches publications with leases by their tags, and knows only proxies.

Everything that the server confirms is on its disk: a lease, and a publication with the names of all leases it is for. A
server killed at any moment restarts with all of it, and the clients repeat what it did not confirm. A publication
without subscribers is not written.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from random import Random
from typing import Final, NamedTuple

import msgspec

from veilcast.core.durable_records import DurableRecords
from veilcast.core.timers import earliest
from veilcast.crypto.derive import digest
from veilcast.crypto.group import Multiply, multiply_each
from veilcast.decoding import MsgpackDecoder
from veilcast.errors import LocalError, MalformedError, RemoteError, StaleError, TamperedError
from veilcast.faults import Faults
from veilcast.machine import Address, Entropy, Event, Frame, Listen
from veilcast.relay.config import RelayServerConfig
from veilcast.relay.enrolment import ServerKeys
from veilcast.relay.hardened import HardenedServerProfile
from veilcast.relay.limits import ProxyQuota
from veilcast.relay.mailboxes import Mailboxes
from veilcast.relay.matcher import ExactMatcher, FilterMatcher, IndexedLease, Matcher
from veilcast.relay.paper import PaperServerProfile
from veilcast.relay.profile import SealedPublication, ServerProfile
from veilcast.wire import decode, encode
from veilcast.wire.mesh import Message
from veilcast.wire.relay import Blind, Blinded, Lease, Receipt, Release, ReplyCode, RequestReply, Resume, Submit


class LeaseRecord(msgspec.Struct, frozen=True, array_like=True, tag="lease", forbid_unknown_fields=True):
    """The record of a lease; `part` distinguishes several leases under one name."""

    name: bytes
    part: bytes
    proxy: str
    until_us: int
    tags: tuple[tuple[bytes, ...], ...]
    key: bytes


class PublicationRecord(msgspec.Struct, frozen=True, array_like=True, tag="note", forbid_unknown_fields=True):
    """The record of a publication that some subscriber has not acknowledged."""

    id: bytes
    cipher: bytes | None
    sealed: bytes
    names: tuple[bytes, ...]
    until_us: int
    proxy: str = ""
    """The proxy that submitted it; "" in records older than this field."""


class _Place(NamedTuple):
    """A lease in the server's memory."""

    record: int
    stamp: bytes
    """A digest of the record: an unchanged lease is not written again."""
    proxy: Address
    columns: int


class RelayServer:
    """A `Machine`, with the notices of `Peers` and `Durable`. It asks for `Listen("proxy")`.

    `records` holds the records that earlier runs stored and did not settle: leases, and publications that some
    subscriber has not acknowledged. `refused` counts rejected input by error class or by the code of the answer.
    `matched` counts the subscribers of all publications.
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
    ) -> None:
        self._config = config
        self._part: ServerProfile
        self._matcher: Matcher
        if config.profile == "hardened":
            self._part, self._matcher = HardenedServerProfile(keys, entropy, multiply), ExactMatcher(config.columns_max)
        else:
            self._part, self._matcher = (
                PaperServerProfile(keys, entropy),
                FilterMatcher(config.filter_geometry, config.leases_max),
            )
        self._frames: list[Frame] = []
        self._events: list[Event] = [Listen("proxy")]
        self._leases: dict[tuple[bytes, bytes], _Place] = {}
        self._leases_by, self._columns_by = ProxyQuota(config.leases_each), ProxyQuota(config.columns_each)
        self._parts: Counter[bytes] = Counter()
        self._lapsed: dict[bytes, None] = {}
        """Expired leases with publications still waiting under their names."""
        self.faults = Faults()
        self.refused: Counter[str] = Counter()
        self.matched = 0
        self.version = 0
        self._ledger = DurableRecords(records or {})
        self._boxes = Mailboxes(config, self._part, self._post, self._ledger.settle, self._emptied)
        self._recall(records or {}, now)

    # --- the driver

    def receive(self, data: bytes, source: Address, now: int) -> None:
        self.version += 1
        try:
            message = decode(data)
            try:
                with self.faults.refuse_exceptions():
                    self._act(message, source, now)
            except StaleError:
                raise  # It was long under way; whoever asks is asking anew by now.
            except RemoteError:
                if isinstance(message, Blind | Lease | Release | Resume | Submit):
                    self._refuse(source, message.number, ReplyCode.MALFORMED)
                raise
        except RemoteError as error:
            self.refused[type(error).__name__] += 1
        except Exception as error:
            self.faults.count_exception(error)

    def handle_timer(self, now: int) -> None:
        self.version += 1
        for name in self._matcher.expire(now):
            self._lapse(name)
        self._boxes.handle(now)

    def next_timer(self) -> int | None:
        return earliest(self._matcher.next_us(), self._boxes.next_us())

    def frames_to_send(self, now: int, limit: int) -> list[Frame]:
        # What waits for a proxy that is back may be much, and each copy is made for its reader: as it is asked for.
        while len(self._frames) < limit and self._boxes.send_backlog():
            pass
        frames, self._frames = self._frames[:limit], self._frames[limit:]
        return frames

    def next_event(self) -> Event | None:
        return self._events.pop(0) if self._events else self._ledger.next_event()

    def stored(self, record: int, now: int) -> None:
        self.version += 1
        self._ledger.stored(record, now)

    def peer_up(self, peer: Address, now: int) -> None:
        self._boxes.proxy_up(peer)

    def peer_lost(self, peer: Address, now: int) -> None:
        self._boxes.proxy_lost(peer)

    # --- checkers

    def sizes(self) -> dict[str, int]:
        """Entries in each table."""
        return {
            "leases": len(self._leases),
            "mailboxes": len(self._boxes),
            "matched": len(self._matcher),
            "held": self._boxes.held,
            "waiting": self._boxes.longest_queue,
            "remembered": self._boxes.remembered,
        }

    @property
    def abandoned(self) -> int:
        """Publications that some subscriber never received, because space or time ran out."""
        return self._boxes.abandoned

    # --- what proxies ask for

    def _act(self, message: Message, proxy: Address, now: int) -> None:
        match message:
            case Blind():
                self._post(proxy, Blinded(message.number, self._part.answer_enrolment(message.sealed)))
            case Lease():
                self._lease(message, proxy, now)
            case Release():
                self._release(message, proxy)
            case Resume():
                self._resume(message, proxy)
            case Submit():
                self._submit(message, proxy, now)
            case Receipt():
                self._boxes.acknowledge(message.name, message.ticket)
            case _:
                raise MalformedError("not for a server")

    def _lease(self, lease: Lease, proxy: Address, now: int) -> None:
        key, bond, proof = self._part.open_lease(lease)
        tags = self._part.compute_tags(lease.subjects, bond)
        if not tags or not all(tags) or lease.until_us <= now:
            raise MalformedError("a lease that nothing could match")
        if self._config.profile == "hardened" and lease.until_us > now + self._config.lease_us_max:
            raise MalformedError("a lease that would never end")
        standing = LeaseRecord(lease.name, self._part.lease_part(tags), proxy, lease.until_us, tags, key)
        data = _ENCODER.encode(standing)
        known, stamp = self._leases.get((standing.name, standing.part)), _stamp(data)
        if known is None or known.stamp != stamp:
            if not self._has_room(standing, known):
                self._refuse(proxy, lease.number, ReplyCode.FULL)
                return
            try:
                self._matcher.put(standing.name, standing.part, tags, standing.until_us)
            except LocalError:
                self._refuse(proxy, lease.number, ReplyCode.FULL)
                return
            record = self._ledger.keep(data, None if known is None else known.record)
            known = self._stand(standing, record, stamp)
        self._ledger.when_durable(known.record, now, lambda now: self._done(proxy, lease.number, proof))
        self._boxes.resume(standing.name, proxy)

    def _release(self, release: Release, proxy: Address) -> None:
        part = self._part.lease_part(self._part.compute_tags(release.subjects, None))
        self._matcher.remove(release.name, part)
        self._end(release.name, part)
        self._done(proxy, release.number)

    def _resume(self, resume: Resume, proxy: Address) -> None:
        if resume.name not in self._boxes:
            self._refuse(proxy, resume.number, ReplyCode.UNKNOWN)
            return
        self._done(proxy, resume.number)
        self._boxes.resume(resume.name, proxy)

    def _submit(self, submit: Submit, proxy: Address, now: int) -> None:
        taken, until_us, bond, proof = self._part.open_submission(submit)
        if until_us <= now:
            raise StaleError("a publication under the tags of an epoch that is over")
        record = self._boxes.record_of(taken.id)
        if record is None and not self._boxes.is_settled(taken.id):
            names = self._matcher.match(self._part.compute_tags(submit.subjects, bond))
            self.matched += len(names)
            if not names:
                self._boxes.remember_settled(taken.id)
            elif not self._boxes.has_room(taken, proxy, len(names)):
                self._refuse(proxy, submit.number, ReplyCode.FULL)
                return
            else:
                record = self._hold(taken, proxy, names, now)
        if record is None:
            self._done(proxy, submit.number, proof)
        else:
            self._ledger.when_durable(record, now, lambda now: self._done(proxy, submit.number, proof))

    # --- inside

    def _hold(self, taken: SealedPublication, proxy: Address, names: list[bytes], now: int) -> int:
        until_us = now + self._config.retention_us
        record = self._ledger.keep(_ENCODER.encode(PublicationRecord(*taken, tuple(names), until_us, proxy)))
        self._boxes.store(record, taken, proxy, names, until_us)
        self._ledger.when_durable(record, now, lambda now: self._boxes.deliver(record))
        return record

    def _has_room(self, standing: LeaseRecord, known: _Place | None) -> bool:
        proxy, columns = Address(standing.proxy), len(standing.tags)
        if known is not None and known.proxy == proxy:
            return self._columns_by.fits(proxy, columns - known.columns)
        everywhere = known is not None or len(self._leases) < self._config.leases_max
        return everywhere and self._leases_by.fits(proxy, 1) and self._columns_by.fits(proxy, columns)

    def _stand(self, standing: LeaseRecord, record: int, stamp: bytes) -> _Place:
        key = (standing.name, standing.part)
        if (known := self._leases.get(key)) is None:
            self._parts[standing.name] += 1
        else:
            self._count(known, -1)
        place = self._leases[key] = _Place(record, stamp, Address(standing.proxy), len(standing.tags))
        self._count(place, 1)
        self._lapsed.pop(standing.name, None)
        self._boxes.open(standing.name, place.proxy, standing.key)
        return place

    def _count(self, place: _Place, sign: int) -> None:
        self._leases_by.charge(place.proxy, sign)
        self._columns_by.charge(place.proxy, sign * place.columns)

    def _lapse(self, name: bytes) -> None:
        """A lease has expired; its waiting publications stay for their retention time."""
        if self._boxes.is_empty(name):
            self._end(name, b"")
        else:
            self._lapsed[name] = None

    def _emptied(self, name: bytes) -> None:
        if name in self._lapsed:
            self._end(name, b"")

    def _end(self, name: bytes, part: bytes) -> None:
        """Forget a lease, or a part of one; with the last part, also what waits under its name."""
        known = self._leases.pop((name, part), None)
        if known is None:
            return
        self._ledger.settle(known.record)
        self._count(known, -1)
        self._parts[name] -= 1
        if not self._parts[name]:
            del self._parts[name]
            self._lapsed.pop(name, None)
            self._boxes.close(name)

    def _recall(self, records: Mapping[int, bytes], now: int) -> None:
        entries = [(record, _read(data)) for record, data in sorted(records.items())]
        current: list[IndexedLease] = []
        for record, entry in entries:
            if isinstance(entry, LeaseRecord):
                self._stand(entry, record, _stamp(records[record]))
                if entry.until_us > now:
                    current.append(IndexedLease(entry.name, entry.part, entry.tags, entry.until_us))
                else:
                    self._lapsed[entry.name] = None
        self._matcher.put_many(current)
        for record, entry in entries:
            if isinstance(entry, PublicationRecord):
                taken = SealedPublication(entry.id, entry.cipher, entry.sealed)
                self._boxes.store(record, taken, Address(entry.proxy), entry.names, entry.until_us)
                self._boxes.deliver(record)
        for name in [name for name in self._lapsed if self._boxes.is_empty(name)]:
            self._end(name, b"")

    def _done(self, proxy: Address, number: int, proof: bytes | None = None) -> None:
        self._post(proxy, RequestReply(number, ReplyCode.DONE, proof))

    def _refuse(self, proxy: Address, number: int, code: ReplyCode) -> None:
        self.refused[code.name] += 1
        self._post(proxy, RequestReply(number, code))

    def _post(self, proxy: Address, message: Message) -> None:
        self._frames.append(Frame(proxy, encode(message)))


def _stamp(data: bytes) -> bytes:
    return digest(data, purpose=b"vc/relay-stamp", size=16)


def _read(data: bytes) -> LeaseRecord | PublicationRecord:
    entry: LeaseRecord | PublicationRecord = _DECODER.decode(data)
    return entry


_ENCODER: Final = msgspec.msgpack.Encoder()
_DECODER: Final = MsgpackDecoder(LeaseRecord | PublicationRecord, TamperedError, "a record of the server's is damaged")
