"""The hardened profile of a node: entries with separate names, and trees that hang from guards and are repaired.

Installation does not follow the tree that is installed, messages are addressed to one entry at a time, only the origin
sees tags, and every tree expires with its epoch. The other modules do the work; this one connects them.
"""

from __future__ import annotations

from typing import Final

from veilcast.core.match_elements import derive_element_key, key_element, key_groups, publication_elements
from veilcast.core.member_topics import MemberTopics
from veilcast.core.outbox import PendingPublication
from veilcast.core.sealed_notification import open_notification, seal_notification
from veilcast.core.size_classes import pad_groups
from veilcast.core.timers import earliest
from veilcast.machine import Event
from veilcast.topics import Conjunction, Schema
from veilcast.tree.delivery_tags import DeliveryTags
from veilcast.tree.forwarder import Forwarder
from veilcast.tree.guards import GUARDS_RECORD, Guards
from veilcast.tree.installer import TreeInstaller
from veilcast.tree.listing import Listing
from veilcast.tree.membership_proof import MembershipProver
from veilcast.tree.prober import TreeProber
from veilcast.tree.profile import TreeProfileContext
from veilcast.tree.repair import TreeRepair
from veilcast.tree.subscriber import TreeSubscriber
from veilcast.wire.geometry import NOTE_ID, TAG
from veilcast.wire.tree import ForwardPublication, Offer


class HardenedTreeProfile:
    """A `TreeProfile`. The records hold the guards of an earlier run."""

    def __init__(self, outfit: TreeProfileContext) -> None:
        config, keyring, home, streams = outfit.config, outfit.keyring, outfit.home, outfit.streams
        where, rng, entropy = outfit.address_of, outfit.rng, outfit.entropy
        self._root, self._entropy, self._deliver, self._failed = keyring.root, entropy, outfit.deliver, outfit.on_error
        self.copies = config.copies
        self._prover = MembershipProver(keyring)
        self._topics = MemberTopics(config.profile, keyring)
        self._forwarding = Forwarder(config, keyring, outfit.hops, self._arrive, rng)
        self._guards = Guards(config.chain, home, rng, outfit.records.get(GUARDS_RECORD))
        self._planting = TreeInstaller(
            config, streams, self._prover, home, where, self._forwarding.install, rng, entropy
        )
        self._ends = DeliveryTags(keyring.membership.link, keyring.epoch_us, TAGS_EACH * config.subscriptions_max)
        self._subscribing = TreeSubscriber(
            config, self._topics, self._ends, keyring.epoch_us, home, self._guards, self._planting, rng, entropy
        )
        self._tending = TreeRepair(config, self._subscribing, self._guards)
        self._probing = TreeProber(
            config,
            streams,
            where,
            self._subscribing.current_trees,
            lambda *how: self._tending.handle_outcome(self._probing, *how),
            rng,
            entropy,
            outfit.now,
        )
        self._parts = (
            self._forwarding,
            self._planting,
            self._ends,
            self._subscribing,
            self._probing,
            self._tending,
        )
        self.install = self._forwarding.install
        self.offer = self._forwarding.offer
        self.forward = self._forwarding.forward

    def schema(self, topic: str, now: int) -> Schema:
        return self._topics.keys(topic, self._topics.epoch(now)).record.schema

    def build_offer(self, letter: PendingPublication, now: int) -> Offer:
        keys = self._topics.keys(letter.topic, self._topics.epoch(now))
        key = derive_element_key(keys, b"tree")
        tags = key_groups(key, publication_elements(letter.content.publication, keys.record), TAG)
        # A filler that came once and never again would be known for one: these are the topic's, as its label is.
        groups = pad_groups(tags, lambda place: key_element(key, b"filler %d" % place, TAG))
        body = seal_notification(keys, letter.content, "tree", self._entropy)
        return self._prover.prove(Offer(0, self._entropy(NOTE_ID), groups, None, body))

    def add(self, number: int, topic: str, interest: Conjunction, now: int) -> None:
        self._subscribing.add(number, topic, interest, now)

    def remove(self, number: int, now: int) -> None:
        self._subscribing.remove(number)

    def update_listing(self, listing: Listing, now: int) -> None:
        self._forwarding.listed_count = len(listing)
        self._subscribing.update_listing(listing, now)

    def next_us(self) -> int | None:
        return earliest(*(part.next_us() for part in self._parts))

    def handle(self, now: int) -> None:
        for part in self._parts:
            part.handle(now)

    def next_event(self) -> Event | None:
        news = self._subscribing.subscriptions.notices
        return news.pop(0) if news else self._guards.next_event()

    def sizes(self) -> dict[str, int]:
        return {
            "entries": self._forwarding.entry_count,
            "seen": self._forwarding.seen_count,
            "subscriptions": len(self._subscribing.subscriptions),
            "parcels": len(self._planting),
            "probes": len(self._probing),
        }

    def _arrive(self, carry: ForwardPublication, now: int) -> bool:
        """True if the message has reached the end of one of this node's trees. The last forwarder sees one more hop."""
        end = self._ends.get(carry.entry, now)
        if end is None:
            return False
        if end.interest.numbers and not self._probing.take_returned(carry.message, now):
            topic = end.interest.topic
            try:
                keys = self._topics.keys(topic, end.epoch)
                content = open_notification(keys, carry.body, "tree", self._root, end.epoch)
            except Exception as error:  # Not a note for us, or one for which our grant has ended, or a fault of ours.
                self._failed(error)
            else:
                self._deliver(topic, content, [end.interest], now)
        return True


TAGS_EACH: Final = 8
"""Delivery tags per subscription: for a few epochs, and for some withdrawn interests."""
