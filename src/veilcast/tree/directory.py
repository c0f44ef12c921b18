"""A directory: lists the nodes for members, and knows nothing of their traffic.

A node enrols with a descriptor and stays listed for one lease. It renews long before the end, so an unresponsive node
drops out. The directory signs a new listing when a node asks and something has changed, at most as often as configured.
It keeps the last few listings for nodes that are still downloading one. Several directories of one tree agree on each
listing and sign it together (`tree.listing_rounds`). All requests arrive through the anonymous network on separate
streams: the directory knows its nodes, and not the node behind a request.

The listing is for members: a request without a proof of the network key gets no answer, and costs one hash.

A node is listed once, under the fingerprint of its certified link key. A sub-authority could certify its own key under
the name of another authority's member. So only the authority that certified a listed node, and the root, can change its
entry.

The disk records which nodes were admitted and since when. Publishers choose origins among nodes that have been listed
for long, and these nodes must not all become newcomers when the directory restarts. Renewals are not on the disk. A
restarted directory gives every node one lease; a node that does not renew drops out then.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from random import Random
from typing import Final

import msgspec

from veilcast.authority.keyring import Keyring
from veilcast.authority.member_statement import StatementReader
from veilcast.authority.revocation import RevokedKeys
from veilcast.core.host import HostBase
from veilcast.core.rate_limit import PeerRateLimits, Rate, TokenBucket
from veilcast.core.timers import Timers, earliest
from veilcast.crypto.derive import digest, fingerprint
from veilcast.decoding import MsgpackDecoder
from veilcast.errors import ExcessError, ForgedError, MalformedError, RemoteError, StaleError, TamperedError
from veilcast.machine import Address, Event
from veilcast.tree.config import DirectoryConfig
from veilcast.tree.descriptor import AHEAD_US, check_descriptor
from veilcast.tree.listing import Listing, SignedListing, sign_listing
from veilcast.tree.listing_rounds import ListingRounds
from veilcast.tree.membership_proof import MembershipProver
from veilcast.wire import decode
from veilcast.wire.tree import (
    EnrolNode,
    FetchListing,
    ListedNode,
    ListingHead,
    ListingPage,
    ListingStage,
    NodeEnrolled,
    RefusalCode,
    RequestRefused,
)


class NodeRecord(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A listed node on disk, as of its last admission, move or certification: the certifying authority, and the
    descriptor's time.

    `shown` is a digest of its certificates. A restarted directory uses it to recognise a renewal.
    """

    address: str
    box: bytes
    since_us: int
    issuer: bytes = b""
    issued_us: int = 0
    shown: bytes = b""


class Directory(HostBase):
    """A `Machine`, with the notices of `Peers` and `Durable`. It asks for `Listen("tree")`.

    `records` holds the records that earlier runs stored and did not settle: the listed nodes. `refused` counts rejected
    input by error class.
    """

    def __init__(
        self,
        config: DirectoryConfig,
        keyring: Keyring,
        rng: Random,
        now: int,
        records: Mapping[int, bytes] | None = None,
        revoked: RevokedKeys | None = None,
    ) -> None:
        records = records or {}
        super().__init__("tree", records)
        self._config, self._keyring = config, keyring
        self._reader, self._prover = StatementReader(keyring, revoked), MembershipProver(keyring)
        self._nodes: dict[bytes, _NodeEntry] = {}
        self._expiries: Timers[bytes] = Timers()
        self._editions: deque[SignedListing] = deque(maxlen=config.versions)
        self._changed = True
        self._failures = TokenBucket(config.enrols_every_us, config.enrols_burst)
        """Budget of enrolments that may still fail their check; a renewing node does not depend on it."""
        rate = Rate(config.requests_every_us, config.requests_burst)
        self._limits: PeerRateLimits[Address] = PeerRateLimits(config.callers_max, {_REQUEST: rate})
        self._rounds = (
            ListingRounds(
                config,
                keyring,
                self._reader,
                self._prover,
                self._list_nodes,
                self._editions.append,
                self._post,
                rng,
                now,
            )
            if config.others
            else None
        )
        """Agreement with the other directories; None if there are none."""
        for record, data in records.items():
            self._restore(record, data, now)

    # --- the driver

    def receive(self, data: bytes, source: Address, now: int) -> None:
        self._receive_with(lambda: self._hear(data, source, now))

    def handle_timer(self, now: int) -> None:
        for node in self._expiries.pop_due(now):
            self.version += 1
            self._records.settle(self._nodes.pop(node).record)
            self._changed = True
        if self._rounds is not None:
            self.version += 1
            self._rounds.handle(now)

    def next_timer(self) -> int | None:
        return earliest(self._expiries.next_us(), None if self._rounds is None else self._rounds.next_us())

    def next_event(self) -> Event | None:
        event = super().next_event()
        return self._rounds.streams.next_event() if event is None and self._rounds is not None else event

    def peer_up(self, peer: Address, now: int) -> None:
        """Any peer may ask; the ones that this directory called are other directories."""
        if self._rounds is not None and "@" in peer:
            self.version += 1
            self._rounds.streams.peer_up(peer, now)

    def peer_lost(self, peer: Address, now: int) -> None:
        self._limits.forget(peer)
        if self._rounds is not None:
            self.version += 1
            self._rounds.streams.peer_lost(peer, now)

    def sizes(self) -> dict[str, int]:
        """Entries in each table, for checks of their bounds."""
        return {
            "nodes": len(self._nodes),
            "editions": len(self._editions),
            "callers": len(self._limits),
            "streams": 0 if self._rounds is None else len(self._rounds.streams),
        }

    # --- requests

    def _hear(self, data: bytes, source: Address, now: int) -> None:
        if self._rounds is not None and source in self._rounds.streams:
            self._hear_answer(self._rounds, data, source, now)
            return
        if not self._limits.take(source, _REQUEST, now):
            raise ExcessError("the stream exceeds its rate limit")
        request = decode(data)
        if isinstance(request, EnrolNode):
            self._enrol(request, source, now)
        elif isinstance(request, FetchListing):
            self._fetch(request, source, now)
        else:
            raise MalformedError("not a request to a directory")

    def _enrol(self, enrol: EnrolNode, source: Address, now: int) -> None:
        self._prover.check(enrol)
        node, shown = fingerprint(enrol.box), _digest(enrol.certificates)
        listed = self._nodes.get(node)
        renews = listed is not None and listed.shown == shown
        if not renews and not self._failures.has_token(now):
            self._post(source, RequestRefused(enrol.number, RefusalCode.LIMITED))
            return
        try:
            issuer = self._check(enrol, listed, now)
        except RemoteError:
            self._failures.take(now)
            self._post(source, RequestRefused(enrol.number, RefusalCode.MALFORMED))
            raise
        if listed is None and len(self._nodes) >= self._config.nodes_max:
            self._post(source, RequestRefused(enrol.number, RefusalCode.FULL))
            return
        known = None if listed is None or listed.has_other_issuer(issuer) else listed
        if known is not None and not known.renewals.take(now):
            self._post(source, RequestRefused(enrol.number, RefusalCode.LIMITED))
            return
        if known is None or (known.listed.address, known.issuer, known.shown) != (enrol.address, issuer, shown):
            known = self._admit_node(node, enrol, issuer, known, now)
        until_us = min(enrol.issued_us, now) + self._config.lease_us
        known.issued_us = enrol.issued_us
        since_us = max(known.listed.since_us, min(enrol.since_us, now))
        self._renew(node, known, since_us, until_us)
        self._records.when_durable(
            known.record, now, lambda _: self._post(source, NodeEnrolled(enrol.number, until_us))
        )

    def _check(self, enrol: EnrolNode, listed: _NodeEntry | None, now: int) -> bytes:
        """The authority that certified the node. Raises `RemoteError` unless the sender may speak for this node now.

        The root's member takes its name back from a sub-authority at once: a descriptor with a future time, signed by
        another key under that name, does not make the member's own descriptors stale.
        """
        if not now - self._config.lease_us < enrol.issued_us <= now + AHEAD_US:
            raise StaleError("the descriptor is too old or from the future")
        issuer = check_descriptor(enrol, self._reader, now)
        if listed is not None and listed.has_other_issuer(issuer):
            if issuer != self._keyring.root:
                raise ForgedError("another authority certified the node of this name")
        elif listed is not None and enrol.issued_us < listed.issued_us:
            raise StaleError("the descriptor is older than the stored one")
        return issuer

    def _fetch(self, fetch: FetchListing, source: Address, now: int) -> None:
        self._prover.check(fetch)
        listing, page = self._find_listing(fetch, now), fetch.page
        if listing is None or (page is not None and page >= len(listing.pages)):
            self._post(source, RequestRefused(fetch.number, RefusalCode.UNKNOWN))
            return
        found = listing.head if page is None else listing.pages[page]
        self._post(source, msgspec.structs.replace(found, number=fetch.number))

    def _find_listing(self, fetch: FetchListing, now: int) -> SignedListing | None:
        if fetch.stage != ListingStage.SERVED:
            stage = ListingStage(fetch.stage)
            return None if self._rounds is None else self._rounds.own_listing(stage, fetch.version)
        if fetch.page is None:
            return self._newest(now)
        return next((edition for edition in self._editions if edition.head.version == fetch.version), None)

    def _hear_answer(self, rounds: ListingRounds, data: bytes, source: Address, now: int) -> None:
        answer = decode(data)
        if not isinstance(answer, ListingHead | ListingPage | RequestRefused):
            raise MalformedError("not an answer of a directory")
        rounds.streams.handle_answer(source, answer, now)

    # --- nodes and editions

    def _admit_node(
        self, node: bytes, enrol: EnrolNode, issuer: bytes, known: _NodeEntry | None, now: int
    ) -> _NodeEntry:
        """List a node that is new, or that differs from its record. A node that moves keeps its age and its rate
        limits."""
        since_us = now if known is None else known.listed.since_us
        node_record = NodeRecord(
            enrol.address, enrol.box, since_us, issuer, enrol.issued_us, _digest(enrol.certificates)
        )
        former = self._nodes.get(node)
        record = self._records.keep(_ENCODER.encode(node_record), None if former is None else former.record)
        self._nodes[node] = self._make_node(node_record, record, None if known is None else known.renewals)
        return self._nodes[node]

    def _make_node(self, node_record: NodeRecord, record: int, renewals: TokenBucket | None = None) -> _NodeEntry:
        renewals = renewals or TokenBucket(self._config.renewals_every_us, self._config.renewals_burst)
        return _NodeEntry(record, node_record, renewals)

    def _renew(self, node: bytes, known: _NodeEntry, since_us: int, until_us: int) -> None:
        """A node that reports a later start than the recorded one counts as restarted at that time."""
        known.listed = msgspec.structs.replace(known.listed, since_us=since_us, until_us=until_us)
        self._expiries.set(node, until_us)
        self._changed = True

    def _list_nodes(self) -> list[ListedNode]:
        return [known.listed for known in self._nodes.values()]

    def _newest(self, now: int) -> SignedListing | None:
        """The listing that is served now. Changes wait for the next one.

        A directory by itself serves no listing until its end. With others, it serves what they agreed on last.
        """
        newest = self._editions[-1] if self._editions else None
        if self._rounds is not None:
            return newest
        age_us = 0 if newest is None else now - newest.head.version
        due = (self._changed and age_us >= self._config.publish_us) or age_us >= self._config.listing_us // 2
        if newest is None or due:
            newest = sign_listing(Listing(self._list_nodes(), now, now + self._config.listing_us), self._keyring)
            self._editions.append(newest)
            self._changed = False
        return newest

    def _restore(self, record: int, data: bytes, now: int) -> None:
        node_record = _DECODER.decode(data)
        node = fingerprint(node_record.box)
        self._nodes[node] = self._make_node(node_record, record)
        self._renew(node, self._nodes[node], node_record.since_us, now + self._config.lease_us)


class _NodeEntry:
    """A listed node: its record, its listing entry, and what it showed at its last enrolment."""

    __slots__ = ("issued_us", "issuer", "listed", "record", "renewals", "shown")

    def __init__(self, record: int, node_record: NodeRecord, renewals: TokenBucket) -> None:
        self.record, self.renewals = record, renewals
        self.listed = ListedNode(node_record.address, node_record.box, node_record.since_us, 0)
        self.issuer, self.issued_us, self.shown = node_record.issuer, node_record.issued_us, node_record.shown

    def has_other_issuer(self, issuer: bytes) -> bool:
        """False if the record is from a time when directories did not store the issuer."""
        return self.issuer not in (b"", issuer)


def _digest(certificates: tuple[bytes, ...]) -> bytes:
    return digest(_ENCODER.encode(certificates), purpose=b"vc/tree-shown", size=SHOWN)


_REQUEST: Final = "request"
SHOWN: Final = 16
_ENCODER: Final = msgspec.msgpack.Encoder()
_DECODER: Final = MsgpackDecoder(NodeRecord, TamperedError, "a record of the directory's nodes is damaged")
