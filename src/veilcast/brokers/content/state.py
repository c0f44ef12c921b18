"""One publication on its way through a replica: its blocks, who is to have them, and who has said that it does."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TypeAlias

from veilcast.brokers.content.coding import ContentManifest
from veilcast.brokers.keys.scheme import ReplicaId, Scheme
from veilcast.brokers.routing.view import Branch, Peer, is_from
from veilcast.machine import Address
from veilcast.wire.brokers import ForwardContent

HopName: TypeAlias = bytes | Address
"""A branch, whatever its scheme is: a node's name or a client's link."""


class BranchState:
    """A branch, and who of it is done."""

    def __init__(self) -> None:
        self.branch: Branch = Address("")
        self._done: dict[Peer, None] = {}

    def confirm(self, source: Peer) -> None:
        self._done[source] = None

    @property
    def is_client(self) -> bool:
        return not isinstance(self.branch, Scheme)

    @property
    def is_confirmed(self) -> bool:
        if not isinstance(self.branch, Scheme):
            return self.branch in self._done
        by_scheme = Counter(place.scheme for place in self._done if isinstance(place, ReplicaId))
        return any(count > scheme.max_faulty for scheme, count in by_scheme.items())


class AttemptVotes:
    """Which attempts who sends a content has made; bounded by the replicas of one node, in its schemes.

    An attempt has everybody pass everything on once more, and nobody signs its number. So it counts when its publisher
    says it, or more replicas than can lie: else a liar could say the last one first, and no other would be news.
    """

    def __init__(self) -> None:
        self._said: dict[Peer, int] = {}

    def last_attempt_of(self, source: Peer) -> int:
        return self._said.get(source, 0)

    def record(self, source: Peer, attempt: int) -> int:
        """The last one that counts, with this."""
        self._said[source] = max(attempt, self._said.get(source, 0))
        if not isinstance(source, ReplicaId):
            return self._said[source]
        scheme = source.scheme
        said = [made for peer, made in self._said.items() if isinstance(peer, ReplicaId) and peer.scheme == scheme]
        return sorted(said, reverse=True)[scheme.max_faulty] if len(said) > scheme.max_faulty else 0


class ContentState:
    """Bounded by its manifest, and by the branches, which are claims."""

    def __init__(
        self, carry: ForwardContent, manifest: ContentManifest, before: Branch, publisher: bytes, since: int, until: int
    ) -> None:
        self.id = manifest.id
        self.routing, self.encoded, self.attempt = carry.routing, carry.manifest, 0
        self.attempt_votes = AttemptVotes()
        self.manifest, self.source, self.publisher = manifest, before, publisher
        self.since_us, self.deadline_us = since, until
        self.blocks: dict[int, bytes] = {}
        self.branches: dict[HopName, BranchState] = {}
        self.sent: dict[tuple[Peer, int], None] = {}
        self.requested: dict[int, dict[Peer, None]] = {}
        self.served: Counter[tuple[Peer, int]] = Counter()
        self.request_rounds = 0
        self._asked: dict[int, list[Peer]] = {}
        """By block, who was asked for it last and has its time still."""
        self._overdue: dict[int, dict[Peer, None]] = {}
        """Who has had it."""
        self._late: dict[ReplicaId, None] = {}

    def make_carry(self, index: int | None) -> ForwardContent:
        """With this block, or none."""
        block = None if index is None else self.blocks[index]
        return ForwardContent(self.routing, self.encoded, block, index or 0, self.attempt)

    def confirm(self, source: Peer) -> None:
        for waiting in self.branches.values():
            if is_from(source, waiting.branch):
                waiting.confirm(source)

    def missing_requested(self) -> list[int]:
        """What others want of us and we have not."""
        return [index for index in sorted(self.requested) if index not in self.blocks]

    def start_request(self, peers: Sequence[Peer], blocks: Sequence[int]) -> None:
        self._asked = {index: list(peers) for index in blocks}

    def expire_request(self) -> None:
        """The time of those asked is over."""
        for index, peers in self._asked.items():
            if index not in self.blocks:
                self._overdue.setdefault(index, {}).update(dict.fromkeys(peers))
        self._asked.clear()

    def record_arrival(self, index: int, source: Peer) -> list[ReplicaId]:
        """This one brings a block that we had not: who of the others is late with it, and was not before."""
        overdue = self._overdue.pop(index, {})
        late = [place for place in overdue if isinstance(place, ReplicaId) and place not in (source, *self._late)]
        self._late.update(dict.fromkeys(late))
        return late
