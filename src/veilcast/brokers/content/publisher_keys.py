"""The publisher's keys: each is dealt ahead of need, and used once subscribers have confirmed that they have it.

A transfer takes milliseconds, or tens of seconds where Byzantine replicas make every node agree in rounds. So while one
key is in use, its successor is on its way. The publisher tries the successor with an empty publication (a trial), which
subscribers confirm like any other. Until then the key in use serves on, also beyond its bulk.

1. Property: a publication waits for no transfer, once one key of its advertisement was confirmed.
   Assumption: the subscribers that the trial matched are those that the publication matches.
   Reason: it is sealed with a confirmed key, as long as the next one is not. Confirmed means that f + 1 replicas of the
   edge node say so, and so every subscriber whom the trial matched has opened it (`block_forwarder`, property 5). A
   subscriber that the trial did not match, or that came later, may lack the key: it requests it, and gets it with its
   successor.

2. Property: a Byzantine minority changes neither who can get a key, nor the bound on what one key serves for.
   Reason: dealing earlier changes no step of a transfer, and a key is as secret before its first use as after it. A key
   serves for its bulk, then at most `overtime_us` longer, and never for more than `bulk_key.BULK_MAX` publications.
   After that its successor takes over unconfirmed.
   What `overtime_us` costs: an adversary that got the shares of one key, from a majority of a node while they passed,
   reads what this key serves for. Byzantine minorities can stretch that to `overtime_us`. Without a bound it could last
   as long as the advertisement.

3. Property: the first key of an advertisement is dealt when the advertisement has spread, not when it is needed.
   Reason: `prepare`. It is dealt once more after `PREPARE_AGAIN_US`: brokers that start beside a silent replica ignore
   the keys that they see in their quiet period. Subscribers that come later lack it, so it is dealt again when it is
   used first.

4. Property: Byzantine brokers cannot make the publisher deal without bound.
   Reason: subscribers that lack a key request it through the brokers, and any broker on the path could request it in
   their name. That costs one dealing of this key and one of its successor per `again_us`, and ever fewer. A key that
   has been dealt 256 times (`KEY_ATTEMPTS_MAX` + 1, all numbers that an attempt's byte has) is replaced.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from veilcast.brokers.config import BrokerClientConfig
from veilcast.brokers.edge_links import EdgeLinks
from veilcast.brokers.keys.bulk_key import BulkSealer, PublicationKey, RefreshPolicy
from veilcast.brokers.keys.paper_split import split_key
from veilcast.brokers.keys.redistribution import deal_key
from veilcast.brokers.keys.scheme import KeyAttempt
from veilcast.brokers.operations.share_store import make_pushes
from veilcast.brokers.routing.renewal import ActiveAdvertisement
from veilcast.core.connector import DOUBLINGS_MAX
from veilcast.crypto.group import Scalar
from veilcast.crypto.secret import Secret
from veilcast.crypto.sign import SigningKey
from veilcast.errors import ExcessError, StaleError
from veilcast.machine import Entropy
from veilcast.wire.brokers import FirstShare, WantKey


@dataclass(slots=True, eq=False)
class PublishedKey:
    id: bytes
    topic: str
    advertisement: bytes
    shared: Scalar
    signing: SigningKey
    attempts: int = 0
    dealt_us: int = 0
    dealings_in_row: int = 0
    """Dealings in quick succession."""
    unconfirmed: dict[bytes, None] = field(default_factory=dict)
    """Unconfirmed contents sealed with this key."""
    is_used: bool = False
    is_confirmed: bool = False
    """True if subscribers have confirmed a content that was sealed with it."""
    is_tried: bool = False


class PublisherKeys:
    """Bounded: the keys of unconfirmed contents, and for each topic the key in use, its successor and a prepared
    one."""

    def __init__(self, config: BrokerClientConfig, edge: EdgeLinks, entropy: Entropy) -> None:
        self._config, self._edge, self._entropy = config, edge, entropy
        self._hardened = config.profile == "hardened"
        self._deals_ahead = self._hardened and config.overtime_us > 0
        self._refresh = RefreshPolicy(config.refresh_messages, config.refresh_bytes)
        self._bulks: dict[str, _TopicBulk] = {}
        self._prepared: dict[str, _TopicBulk] = {}
        self._keys: dict[bytes, PublishedKey] = {}

    def __len__(self) -> int:
        return len(self._keys)

    # --- use

    def prepare(self, topic: str, advertised: ActiveAdvertisement, now: int) -> bool:
        """Deal the first key of an advertisement that is not used yet. True the first time: call it once more after
        `PREPARE_AGAIN_US`."""
        used, prepared = self._bulks.get(topic), self._prepared.get(topic)
        if not self._deals_ahead or (used is not None and used.advertisement == advertised.claim.id):
            return False
        if prepared is not None and prepared.advertisement == advertised.claim.id:
            self._deal(prepared.key, now)
            return False
        self._store(self._prepared, topic, self._make_bulk(topic, advertised, now))
        return True

    def is_publishing(self, topic: str) -> bool:
        return topic in self._bulks

    def next_key(
        self, topic: str, advertised: ActiveAdvertisement, size: int, now: int, *, fresh: bool
    ) -> tuple[PublishedKey, PublicationKey]:
        """The key for a publication of this size; `fresh`: one that sealed nothing before."""
        bulk = self._bulks.get(topic)
        if bulk is None or bulk.advertisement != advertised.claim.id or fresh:
            prepared = self._prepared.pop(topic, None)
            if prepared is None or prepared.advertisement != advertised.claim.id:
                self._forget_bulk(prepared)
                prepared = self._make_bulk(topic, advertised, now)
            self._store(self._bulks, topic, prepared)
            bulk = prepared
        elif bulk.sealer.is_due(size) and self._may_advance(bulk, now):
            self._advance(bulk, topic, advertised, now)
        key = bulk.key
        if not key.is_used and not key.is_confirmed and key.dealt_us < now:
            self._deal(key, now)
        key.is_used = True
        if self._deals_ahead and bulk.successor is None:
            bulk.successor = self._draw(bulk, topic, advertised, now)
        return key, bulk.sealer.next_key(size, self._topic_key(advertised))

    def next_trial(self, topic: str, advertised: ActiveAdvertisement) -> tuple[PublishedKey, PublicationKey] | None:
        """The successor that has to be tried, and its key for the trial; None if there is none."""
        bulk = self._bulks.get(topic)
        if bulk is None or (key := bulk.successor) is None or key.is_tried:
            return None
        key.is_tried = True
        return key, bulk.sealer.trial_key(self._topic_key(advertised))

    def is_successor(self, key: PublishedKey) -> bool:
        """True if this key is to take over, under the advertisement that is in use."""
        bulk = self._bulks.get(key.topic)
        return bulk is not None and bulk.successor is key

    def drop_successor(self, key: PublishedKey) -> None:
        """The trial of this key has failed: draw another when the next publication is sealed."""
        bulk = self._bulks[key.topic]
        bulk.successor = None
        bulk.sealer.drop_successor()
        self.forget(key)

    def forget(self, key: PublishedKey | None) -> None:
        """Erase a key that seals nothing more, once no content in transit uses it."""
        if key is None or key.unconfirmed:
            return
        bulks = (*self._bulks.values(), *self._prepared.values())
        if all(key is not bulk.key and key is not bulk.successor for bulk in bulks):
            self._keys.pop(key.id, None)

    # --- dealing

    def request(self, want: WantKey, now: int) -> None:
        """A subscriber lacks a key, or a broker says so. It lacks the successor, too, if it has just come."""
        key = self._keys.get(want.key)
        if key is None or key.advertisement != want.advertisement:
            raise StaleError("not a key of any content in transit")
        bulk = self._bulks.get(key.topic)
        if bulk is not None and bulk.key is key and bulk.successor is not None:
            self.deal_again(bulk.successor, now)
        if not self.deal_again(key, now):
            raise ExcessError("a key that was dealt just now")

    def deal_again(self, key: PublishedKey, now: int) -> bool:
        """Deal the key again, unless the last attempt may still be in progress: with Byzantine brokers one takes long.
        The wait doubles each time, until there was a long pause."""
        least_us = max(self._config.want_us, self._config.again_us << min(key.dealings_in_row, DOUBLINGS_MAX))
        if now < key.dealt_us + least_us:
            return False
        key.dealings_in_row = (
            0 if now >= key.dealt_us + (self._config.again_us << DOUBLINGS_MAX + 1) else key.dealings_in_row + 1
        )
        self._deal(key, now)
        return True

    # --- internals

    def _make_bulk(self, topic: str, advertised: ActiveAdvertisement, now: int) -> _TopicBulk:
        signing = _signing(advertised)
        bulk = _TopicBulk(advertised.claim.id, BulkSealer(self._refresh, signing.public, self._entropy))
        self._advance(bulk, topic, advertised, now)
        return bulk

    def _may_advance(self, bulk: _TopicBulk, now: int) -> bool:
        """True unless the key in use has to serve on, because its successor is not confirmed."""
        if bulk.successor is None or bulk.successor.is_confirmed or bulk.sealer.is_spent:
            return True
        bulk.due_us = now if bulk.due_us is None else bulk.due_us
        return now >= bulk.due_us + self._config.overtime_us

    def _advance(self, bulk: _TopicBulk, topic: str, advertised: ActiveAdvertisement, now: int) -> None:
        old = bulk._key
        bulk._key = bulk.successor or self._draw(bulk, topic, advertised, now)
        bulk.successor = bulk.due_us = None
        bulk.sealer.advance()
        self.forget(old)

    def _draw(self, bulk: _TopicBulk, topic: str, advertised: ActiveAdvertisement, now: int) -> PublishedKey:
        key_id, shared = bulk.sealer.draw_successor()
        key = self._keys[key_id] = PublishedKey(key_id, topic, bulk.advertisement, shared, _signing(advertised))
        self._deal(key, now)
        return key

    def _topic_key(self, advertised: ActiveAdvertisement) -> Secret | None:
        return advertised.keys.content if self._hardened else None

    def _deal(self, key: PublishedKey, now: int) -> None:
        """Transfer the key, as a new attempt."""
        if key.attempts > KEY_ATTEMPTS_MAX:
            self._retire(key)
            return
        attempt, key_attempt, to = key.attempts, KeyAttempt(key.id, key.attempts), self._edge.scheme
        key.attempts += 1
        key.dealt_us = now
        if self._config.delivery == "repository":
            name, repository = (key.advertisement, key.id), self._edge.repository_scheme
            pushes = make_pushes(
                name, key.shared, attempt, repository, key.signing, self._entropy, hardened=self._hardened
            )
            for index, push in enumerate(pushes, 1):
                self._edge.send_to_repository(index, push)
            return
        shares: list[Secret]
        if self._hardened:
            shares = [
                first.encode() for first in deal_key(key.shared, key_attempt, to, key.signing, self._entropy, now)
            ]
        else:
            shares = [
                split_share.encode()
                for split_share in split_key(key.shared, key_attempt, to, key.signing, self._entropy)
            ]
        for index, share in enumerate(shares, 1):
            self._edge.send_to_index(index, FirstShare(key.advertisement, share.reveal()))

    def _retire(self, key: PublishedKey) -> None:
        """New publications get another key. Publications sealed with this one are sealed again in time."""
        if self.is_successor(key):
            self.drop_successor(key)
        for bulks in (self._bulks, self._prepared):
            if (bulk := bulks.get(key.topic)) is not None and bulk.key is key:
                del bulks[key.topic]
                self._forget_bulk(bulk)

    def _store(self, bulks: dict[str, _TopicBulk], topic: str, bulk: _TopicBulk) -> None:
        old = bulks.get(topic)
        bulks[topic] = bulk
        self._forget_bulk(old)

    def _forget_bulk(self, bulk: _TopicBulk | None) -> None:
        if bulk is not None:
            self.forget(bulk.key)
            self.forget(bulk.successor)


@dataclass(slots=True)
class _TopicBulk:
    advertisement: bytes
    sealer: BulkSealer
    _key: PublishedKey | None = None
    successor: PublishedKey | None = None
    due_us: int | None = None
    """Since when the successor ought to be in use; None if it need not."""

    @property
    def key(self) -> PublishedKey:
        """The key in use."""
        assert self._key is not None, "a bulk begins with a key"
        return self._key


def _signing(advertised: ActiveAdvertisement) -> SigningKey:
    assert advertised.keys.signing is not None, "a member that advertises can sign"
    return advertised.keys.signing


KEY_ATTEMPTS_MAX: Final = 255
PREPARE_AGAIN_US: Final = 20_000_000
"""Longer than the quiet period of brokers in nodes of up to nine replicas, with the default bound on delay: 16 s."""
