"""The hardened profile of a node: entries with names of their own, trees that hang by guards and are mended.

Installing does not follow the tree that is installed, messages are addressed to one entry at a time, only the origin
sees tags, and whatever is planted ends with its epoch. The parts say how; here they are put together.
"""

from __future__ import annotations

from typing import Final

from veilcast.authority.filling import filled
from veilcast.authority.letters import Letter
from veilcast.authority.notes import open_note, seal_note
from veilcast.authority.subjects import keyed, keyed_groups, said, subject_key
from veilcast.machine import Event
from veilcast.parts.alarms import earliest
from veilcast.parts.topics import Topics
from veilcast.topics import Conjunction, Schema
from veilcast.tree.ends import Ends
from veilcast.tree.forwarding import Forwarding
from veilcast.tree.guards import GUARDS, Guards
from veilcast.tree.listing import Listing
from veilcast.tree.planting import Planting
from veilcast.tree.probing import Probing
from veilcast.tree.profile import Outfit
from veilcast.tree.proofs import Prover
from veilcast.tree.subscribing import Subscribing
from veilcast.tree.tending import Tending
from veilcast.wire.geometry import NOTE_ID, TAG
from veilcast.wire.tree import Carry, Offer


class Hardened:
    """A `Part`. The records have the guards of an earlier life."""

    def __init__(self, outfit: Outfit) -> None:
        config, keyring, home, streams = outfit.config, outfit.keyring, outfit.home, outfit.streams
        where, rng, entropy = outfit.where, outfit.rng, outfit.entropy
        self._root, self._entropy, self._deliver, self._failed = keyring.root, entropy, outfit.deliver, outfit.failed
        self.copies = config.copies
        self._prover = Prover(keyring)
        self._topics = Topics(config.profile, keyring)
        self._forwarding = Forwarding(config, keyring, outfit.hops, self._arrive, rng)
        self._guards = Guards(config.chain, home, rng, outfit.records.get(GUARDS))
        self._planting = Planting(config, streams, self._prover, home, where, self._forwarding.install, rng, entropy)
        self._ends = Ends(keyring.membership.link, keyring.epoch_us, ENDS_EACH * config.subscriptions_max)
        self._subscribing = Subscribing(
            config, self._topics, self._ends, keyring.epoch_us, home, self._guards, self._planting, rng, entropy
        )
        self._tending = Tending(config, self._subscribing, self._guards)
        self._probing = Probing(
            config,
            streams,
            where,
            self._subscribing.terms,
            lambda *how: self._tending.judge(self._probing, *how),
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
        self.carry = self._forwarding.carry

    def schema(self, topic: str, now: int) -> Schema:
        return self._topics.keys(topic, self._topics.epoch(now)).record.schema

    def offer_of(self, letter: Letter, now: int) -> Offer:
        keys = self._topics.keys(letter.topic, self._topics.epoch(now))
        key = subject_key(keys, b"tree")
        tags = keyed_groups(key, said(letter.content.publication, keys.record), TAG)
        # A filler that came once and never again would be known for one: these are the topic's, as its label is.
        groups = filled(tags, lambda place: keyed(key, b"filler %d" % place, TAG))
        body = seal_note(keys, letter.content, "tree", self._entropy)
        return self._prover.prove(Offer(0, self._entropy(NOTE_ID), groups, None, body))

    def add(self, number: int, topic: str, interest: Conjunction, now: int) -> None:
        self._subscribing.add(number, topic, interest, now)

    def remove(self, number: int, now: int) -> None:
        self._subscribing.remove(number)

    def listed(self, listing: Listing, now: int) -> None:
        self._forwarding.listed = len(listing)
        self._subscribing.listed(listing, now)

    def next_us(self) -> int | None:
        return earliest(*(part.next_us() for part in self._parts))

    def handle(self, now: int) -> None:
        for part in self._parts:
            part.handle(now)

    def next_event(self) -> Event | None:
        news = self._subscribing.wishes.news
        return news.pop(0) if news else self._guards.next_event()

    def sizes(self) -> dict[str, int]:
        return {
            "entries": self._forwarding.entries,
            "seen": self._forwarding.seen,
            "subscriptions": len(self._subscribing.wishes),
            "parcels": len(self._planting),
            "probes": len(self._probing),
        }

    def _arrive(self, carry: Carry, now: int) -> bool:
        """Whether this has come to the end of one of our trees. To its last carrier it is as if it went on."""
        end = self._ends.get(carry.entry, now)
        if end is None:
            return False
        if end.wish.readers and not self._probing.returned(carry.message, now):
            topic = end.wish.topic
            try:
                keys = self._topics.keys(topic, end.epoch)
                content = open_note(keys, carry.body, "tree", self._root, end.epoch)
            except Exception as error:  # Not a note for us, or one for which our grant has ended, or a fault of ours.
                self._failed(error)
            else:
                self._deliver(topic, content, [end.wish], now)
        return True


ENDS_EACH: Final = 8
"""Of each subscription: for a few epochs, and for some that were given up."""
