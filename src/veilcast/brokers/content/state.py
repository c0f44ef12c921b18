"""The state of one publication in transit through a replica: its blocks, its receivers, and which of them have
confirmed it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TypeAlias

from veilcast.brokers.content.blocks import ContentManifest
from veilcast.brokers.keys.scheme import ReplicaId, Scheme
from veilcast.brokers.routing.view import Branch, Peer, is_from
from veilcast.machine import Address
from veilcast.wire.brokers import ForwardContent

HopName: TypeAlias = bytes | Address
"""A branch regardless of its scheme: a node's name or a client's link."""


class BranchState:
    """A branch, and the peers of it that have confirmed the content."""

    def __init__(self) -> None:
        self.branch: Branch = Address("")
        self._confirmed: dict[Peer, None] = {}

    def confirm(self, source: Peer) -> None:
        self._confirmed[source] = None

    @property
    def is_client(self) -> bool:
        return not isinstance(self.branch, Scheme)

    @property
    def is_confirmed(self) -> bool:
        if not isinstance(self.branch, Scheme):
            return self.branch in self._confirmed
        by_scheme = Counter(replica.scheme for replica in self._confirmed if isinstance(replica, ReplicaId))
        return any(count > scheme.max_faulty for scheme, count in by_scheme.items())


class AttemptVotes:
    """The attempts that the senders of a content have made. Bounded by the replicas of one node, in its schemes.

    A new attempt makes every replica forward everything again, and its number is not signed. So an attempt counts if
    its publisher sends it, or more than f replicas do. Otherwise a Byzantine replica could name the last attempt first,
    and no later attempt would be new.
    """

    def __init__(self) -> None:
        self._attempts: dict[Peer, int] = {}

    def last_attempt_of(self, source: Peer) -> int:
        return self._attempts.get(source, 0)

    def record(self, source: Peer, attempt: int) -> int:
        """Record the attempt. Returns the last attempt that counts."""
        self._attempts[source] = max(attempt, self._attempts.get(source, 0))
        if not isinstance(source, ReplicaId):
            return self._attempts[source]
        scheme = source.scheme
        attempts = [
            made for peer, made in self._attempts.items() if isinstance(peer, ReplicaId) and peer.scheme == scheme
        ]
        return sorted(attempts, reverse=True)[scheme.max_faulty] if len(attempts) > scheme.max_faulty else 0


class ContentState:
    """Bounded by its manifest, and by the branches, which are claims."""

    def __init__(
        self,
        carry: ForwardContent,
        manifest: ContentManifest,
        source: Branch,
        publisher: bytes,
        since_us: int,
        deadline_us: int,
    ) -> None:
        self.id = manifest.id
        self.routing, self.encoded, self.attempt = carry.routing, carry.manifest, 0
        self.attempt_votes = AttemptVotes()
        self.manifest, self.source, self.publisher = manifest, source, publisher
        self.since_us, self.deadline_us = since_us, deadline_us
        self.blocks: dict[int, bytes] = {}
        self.branches: dict[HopName, BranchState] = {}
        self.sent: dict[tuple[Peer, int], None] = {}
        self.requested: dict[int, dict[Peer, None]] = {}
        self.served: Counter[tuple[Peer, int]] = Counter()
        self.request_rounds = 0
        self._requested: dict[int, list[Peer]] = {}
        """Peers that were asked for a block last and still have time."""
        self._overdue: dict[int, dict[Peer, None]] = {}
        """Peers that were asked for a block and missed their deadline."""
        self._late_replicas: dict[ReplicaId, None] = {}

    def make_carry(self, index: int | None) -> ForwardContent:
        """The message with this block, or without a block."""
        block = None if index is None else self.blocks[index]
        return ForwardContent(self.routing, self.encoded, block, index or 0, self.attempt)

    def confirm(self, source: Peer) -> None:
        for waiting in self.branches.values():
            if is_from(source, waiting.branch):
                waiting.confirm(source)

    def missing_requested(self) -> list[int]:
        """Blocks that others have requested and this replica lacks."""
        return [index for index in sorted(self.requested) if index not in self.blocks]

    def start_request(self, peers: Sequence[Peer], blocks: Sequence[int]) -> None:
        self._requested = {index: list(peers) for index in blocks}

    def expire_request(self) -> None:
        """The deadline of the last request is over."""
        for index, peers in self._requested.items():
            if index not in self.blocks:
                self._overdue.setdefault(index, {}).update(dict.fromkeys(peers))
        self._requested.clear()

    def record_arrival(self, index: int, source: Peer) -> list[ReplicaId]:
        """`source` sends a new block. Returns the other replicas that are late with it, each only once per content."""
        overdue = self._overdue.pop(index, {})
        late_replicas = [
            replica
            for replica in overdue
            if isinstance(replica, ReplicaId) and replica not in (source, *self._late_replicas)
        ]
        self._late_replicas.update(dict.fromkeys(late_replicas))
        return late_replicas
