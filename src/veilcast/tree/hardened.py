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
from veilcast.core.timers import TimerTable
from veilcast.crypto.derive import derive
from veilcast.crypto.secret import Secret
from veilcast.machine import Event
from veilcast.topics import Conjunction, Schema
from veilcast.tree.config import TreeConfig
from veilcast.tree.delivery_tags import DeliveryTags
from veilcast.tree.guards import GUARDS_RECORD, Guards
from veilcast.tree.hardened_forwarder import Forwarder
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

    def __init__(self, context: TreeProfileContext) -> None:
        config, keyring, home, streams = context.config, context.keyring, context.home, context.streams
        address_of, rng, entropy = context.address_of, context.rng, context.entropy
        self._root, self._entropy, self._deliver, self._on_error = (
            keyring.root,
            entropy,
            context.deliver,
            context.on_error,
        )
        self.copies = config.copies
        self._prover = MembershipProver(keyring)
        self._topics = MemberTopics(config.profile, keyring)
        self._forwarder = Forwarder(config, keyring, context.hops, self._arrive, rng)
        self._hops = context.hops
        # The last node of a tail forwards to nobody.
        places = config.chain + config.tail + (config.tail > 0)
        self._guards = Guards(places, home, rng, context.records.get(GUARDS_RECORD))
        self._installer = TreeInstaller(
            config, streams, self._prover, home, address_of, self._forwarder.install, rng, entropy
        )
        self._delivery_tags = DeliveryTags(
            keyring.membership.link, keyring.epoch_us, TAGS_EACH * config.subscriptions_max
        )
        self._subscriber = TreeSubscriber(
            config,
            self._topics,
            self._delivery_tags,
            keyring.epoch_us,
            home,
            self._guards,
            self._installer,
            rng,
            entropy,
            _draw_stand(keyring.membership.link, config),
        )
        self._repair = TreeRepair(config, self._subscriber, self._guards)
        self._prober = TreeProber(
            config,
            streams,
            address_of,
            self._subscriber.current_trees,
            lambda *outcome: self._repair.handle_outcome(self._prober, *outcome),
            rng,
            entropy,
            context.now,
        )
        self._timers = TimerTable(
            {
                "expiry of entries": self._forwarder,
                "instructions to send": self._installer,
                "expiry of delivery tags": self._delivery_tags,
                "trees to install, and their expiry": self._subscriber,
                "probes to send, and their deadlines": self._prober,
                "verdict on lost probes": self._repair,
            }
        )
        self.install = self._forwarder.install
        self.offer = self._forwarder.offer
        self.forward = self._forwarder.forward

    def schema(self, topic: str, now: int) -> Schema:
        return self._topics.keys(topic, self._topics.epoch(now)).record.schema

    def build_offer(self, pending: PendingPublication, now: int) -> Offer:
        keys = self._topics.keys(pending.topic, self._topics.epoch(now))
        key = derive_element_key(keys, b"tree")
        tags = key_groups(key, publication_elements(pending.content.publication, keys.record), TAG)
        # A filler that appears only once would be recognised: fillers belong to the topic, as its label does.
        groups = pad_groups(tags, lambda place: key_element(key, b"filler %d" % place, TAG))
        body = seal_notification(keys, pending.content, "tree", self._entropy)
        return self._prover.prove(Offer(0, self._entropy(NOTE_ID), groups, None, body))

    def add(self, number: int, topic: str, interest: Conjunction, now: int) -> None:
        self._subscriber.add(number, topic, interest, now)

    def remove(self, number: int, now: int) -> None:
        self._subscriber.remove(number)

    def update_listing(self, listing: Listing, now: int) -> None:
        self._forwarder.listed_count = len(listing)
        self._subscriber.update_listing(listing, now)

    def next_us(self) -> int | None:
        return self._timers.next_us()

    def handle(self, now: int) -> None:
        self._timers.handle(now)

    def next_event(self) -> Event | None:
        news = self._subscriber.subscriptions.notices
        return news.pop(0) if news else self._guards.next_event()

    def sizes(self) -> dict[str, int]:
        return {
            "entries": self._forwarder.entry_count,
            "seen": self._forwarder.seen_count,
            "subscriptions": len(self._subscriber.subscriptions),
            "parcels": len(self._installer),
            "probes": len(self._prober),
        }

    def _arrive(self, carry: ForwardPublication, now: int) -> bool:
        """True if the message has reached the end of one of this node's trees. The last forwarder sees one more hop."""
        tag = self._delivery_tags.get(carry.entry, now)
        if tag is None:
            return False
        if (behind := self._subscriber.behind(tag)) is not None:
            # As any guard does, at once and for any message.
            onward = ForwardPublication(0, behind[1], carry.message, carry.body)
            self._hops.send(behind[0], onward, now, entry=carry.entry)
        if tag.interest.numbers and not self._prober.take_returned(carry.message, now):
            topic = tag.interest.topic
            try:
                keys = self._topics.keys(topic, tag.epoch)
                content = open_notification(keys, carry.body, "tree", self._root, tag.epoch)
            except Exception as error:  # Not a valid notification, an expired grant, or a local fault.
                self._on_error(error)
            else:
                self._deliver(topic, content, [tag.interest], now)
        return True


def _draw_stand(link: Secret, config: TreeConfig) -> int:
    """The number of guards before this node, the same for all its life: any from 1 to all. 0 without a tail."""
    drawn = int.from_bytes(derive(link, b"vc/tree-stand", size=8).reveal(), "big")
    return 1 + drawn % (config.chain + config.tail) if config.tail else 0


TAGS_EACH: Final = 8
"""Delivery tags per subscription: for a few epochs, and for some withdrawn interests."""
