"""The advertisements that a subscriber knows, and their publishers.

Brokers send their clients the advertisements that their subscriptions overlap. An advertisement certifies itself, so it
does not matter whether a Byzantine replica sent it: it contains the authority's certificate for a publisher of this
topic in this epoch, and a signature with the certified key. All keys and contents under an advertisement are checked
with that key. Messages under an unknown advertisement are ignored.
"""

from __future__ import annotations

from collections import Counter
from typing import Final, NamedTuple

from veilcast.authority.epoch import HOUR_US
from veilcast.authority.keyring import Keyring, TopicKeys
from veilcast.brokers.routing.claims import check_advertisement, check_times
from veilcast.core.member_topics import MemberTopics
from veilcast.core.timers import Timers
from veilcast.crypto.topic_token import scope_covers
from veilcast.errors import ExcessError, ForgedError, LocalError, StaleError
from veilcast.wire.brokers import Claim


class KnownAdvertisement(NamedTuple):
    """`keys` are the topic's in the epoch of the advertisement; `publisher` is the key that signs keys and contents."""

    id: bytes
    topic: str
    keys: TopicKeys
    publisher: bytes


class VerifiedAdvertisements:
    """Bounded: `most` in total; in `hardened`, where each publisher has its own key, `ADVERTISEMENTS_PER_PUBLISHER` of
    each key."""

    def __init__(self, keyring: Keyring, topics: MemberTopics, *, hardened: bool, most: int) -> None:
        self._topics, self._root, self._epoch_us = topics, keyring.root, keyring.epoch_us
        self._hardened, self._total_max, self._publisher_max = (
            hardened,
            most,
            ADVERTISEMENTS_PER_PUBLISHER if hardened else most,
        )
        self._known: dict[bytes, KnownAdvertisement] = {}
        self._of_publisher: Counter[bytes] = Counter()
        self._expiry: Timers[bytes] = Timers()

    def __len__(self) -> int:
        return len(self._known)

    def add(self, claim: Claim, now: int) -> None:
        """Add an advertisement of a topic that the member may read, subscribed or not. Raises for any other, and for an
        invalid one."""
        id_ = claim.id
        if id_ in self._known:
            return
        check_times(claim, self._hardened, self._epoch_us, LEASE_MAX_US, now)
        check_advertisement(claim, self._root)
        topic, keys, publisher = self._identify(claim)
        if len(self._known) >= self._total_max or self._of_publisher[publisher] >= self._publisher_max:
            raise ExcessError("no room for another advertisement, or none for another of this publisher")
        self._known[id_] = KnownAdvertisement(id_, topic, keys, publisher)
        self._of_publisher[publisher] += 1
        self._expiry.set(id_, claim.until_us)

    def get(self, id_: bytes) -> KnownAdvertisement:
        advertisement = self._known.get(id_)
        if advertisement is None:
            raise StaleError("under an advertisement that is not known here")
        return advertisement

    def next_us(self) -> int | None:
        return self._expiry.next_us()

    def handle(self, now: int) -> list[bytes]:
        """Remove and return the expired advertisements."""
        expired = self._expiry.pop_due(now)
        for id_ in expired:
            advertisement = self._known.pop(id_)
            self._of_publisher[advertisement.publisher] -= 1
            if not self._of_publisher[advertisement.publisher]:
                del self._of_publisher[advertisement.publisher]
        return expired

    def _identify(self, claim: Claim) -> tuple[str, TopicKeys, bytes]:
        assert claim.chain is not None, "it was checked"
        for topic in self._granted(claim.epoch):
            keys = self._topics.keys(topic, claim.epoch)
            if scope_covers(claim.chain.leaf.scope, keys.token, keys.cell):
                keys.check_publisher(claim.chain, self._root, claim.epoch)
                return topic, keys, claim.chain.leaf.subject
        raise ForgedError("an advertisement of no topic that can be read here")

    def _granted(self, epoch: int) -> list[str]:
        try:
            return self._topics.readable(epoch)
        except LocalError:
            return []  # The membership does not reach that far.


ADVERTISEMENTS_PER_PUBLISHER: Final = 4
"""One for each edge node that a publisher's runs may have had, with a margin."""

LEASE_MAX_US: Final = 24 * HOUR_US
"""`paper` only: longest lifetime of an advertisement. Brokers allow their clients less."""
