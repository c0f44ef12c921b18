"""One publication on its way through a replica: its blocks, who is to have them, and who has said that it does."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TypeAlias

from veilcast.brokers.content import Manifest
from veilcast.brokers.routes import Branch, Peer, is_from
from veilcast.brokers.sharing.scheme import Place, Scheme
from veilcast.machine import Address
from veilcast.wire.brokers import Carry

Hop: TypeAlias = bytes | Address
"""A branch, whatever its scheme is: a node's name or a client's link."""


class Waiting:
    """A branch, and who of it is done."""

    def __init__(self) -> None:
        self.branch: Branch = Address("")
        self._done: dict[Peer, None] = {}

    def hear(self, source: Peer) -> None:
        self._done[source] = None

    @property
    def is_client(self) -> bool:
        return not isinstance(self.branch, Scheme)

    @property
    def done(self) -> bool:
        if not isinstance(self.branch, Scheme):
            return self.branch in self._done
        by_scheme = Counter(place.scheme for place in self._done if isinstance(place, Place))
        return any(count > scheme.tolerated for scheme, count in by_scheme.items())


class Attempts:
    """Which attempts who sends a content has made; bounded by the replicas of one node, in its schemes.

    An attempt has everybody pass everything on once more, and nobody signs its number. So it counts when its publisher
    says it, or more replicas than can lie: else a liar could say the last one first, and no other would be news.
    """

    def __init__(self) -> None:
        self._said: dict[Peer, int] = {}

    def said(self, source: Peer) -> int:
        return self._said.get(source, 0)

    def hear(self, source: Peer, attempt: int) -> int:
        """The last one that counts, with this."""
        self._said[source] = max(attempt, self._said.get(source, 0))
        if not isinstance(source, Place):
            return self._said[source]
        scheme = source.scheme
        said = [made for peer, made in self._said.items() if isinstance(peer, Place) and peer.scheme == scheme]
        return sorted(said, reverse=True)[scheme.tolerated] if len(said) > scheme.tolerated else 0


class Carried:
    """Bounded by its manifest, and by the branches, which are claims."""

    def __init__(
        self, carry: Carry, manifest: Manifest, before: Branch, publisher: bytes, since: int, until: int
    ) -> None:
        self.id = manifest.id
        self.routing, self.encoded, self.attempt = carry.routing, carry.manifest, 0
        self.attempts = Attempts()
        self.manifest, self.before, self.publisher = manifest, before, publisher
        self.since, self.until = since, until
        self.blocks: dict[int, bytes] = {}
        self.branches: dict[Hop, Waiting] = {}
        self.sent: dict[tuple[Peer, int], None] = {}
        self.wanted: dict[int, dict[Peer, None]] = {}
        self.served: Counter[tuple[Peer, int]] = Counter()
        self.tries = 0
        self._asked: dict[int, list[Peer]] = {}
        """By block, who was asked for it last and has its time still."""
        self._overdue: dict[int, dict[Peer, None]] = {}
        """Who has had it."""
        self._late: dict[Place, None] = {}

    def carry(self, index: int | None) -> Carry:
        """With this block, or none."""
        block = None if index is None else self.blocks[index]
        return Carry(self.routing, self.encoded, block, index or 0, self.attempt)

    def hear_done(self, source: Peer) -> None:
        for waiting in self.branches.values():
            if is_from(source, waiting.branch):
                waiting.hear(source)

    def lacking(self) -> list[int]:
        """What others want of us and we have not."""
        return [index for index in sorted(self.wanted) if index not in self.blocks]

    def ask(self, peers: Sequence[Peer], blocks: Sequence[int]) -> None:
        self._asked = {index: list(peers) for index in blocks}

    def run_out(self) -> None:
        """The time of those asked is over."""
        for index, peers in self._asked.items():
            if index not in self.blocks:
                self._overdue.setdefault(index, {}).update(dict.fromkeys(peers))
        self._asked.clear()

    def bring(self, index: int, source: Peer) -> list[Place]:
        """This one brings a block that we had not: who of the others is late with it, and was not before."""
        overdue = self._overdue.pop(index, {})
        late = [place for place in overdue if isinstance(place, Place) and place not in (source, *self._late)]
        self._late.update(dict.fromkeys(late))
        return late
