"""The paper's profile of a node (P2 4.2, to the letter): what its flaws are shown on, and its costs measured.

A subscriber is the root of its own tree. Instructions go along that tree, in layers that get smaller from hop to hop;
topics are plain; a subscription never ends by itself, and only where filters count can it be taken back; nothing is
probed or mended. Who is listed later is hung below somebody who was there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from veilcast.authority.letters import Letter
from veilcast.authority.notes import bare_note, open_bare_note
from veilcast.authority.subjects import Groups, asked, named_groups, poured
from veilcast.crypto.noise import Keypair
from veilcast.crypto.seal import KEY
from veilcast.crypto.secret import Secret
from veilcast.errors import LocalError
from veilcast.machine import Event
from veilcast.parts.alarms import Alarms
from veilcast.parts.calling import backoff
from veilcast.parts.topics import Topics
from veilcast.parts.ways import way
from veilcast.parts.wishes import Wish, Wishes
from veilcast.topics import Conjunction, Schema
from veilcast.tree.bundles import Instruction, Recipient, wrap_group, wrap_tree
from veilcast.tree.listing import Listing
from veilcast.tree.plan import Rooted
from veilcast.tree.pouring import HEADERS, Pouring
from veilcast.tree.profile import Outfit
from veilcast.tree.proofs import context_of
from veilcast.tree.purposes import INSTALL, fresh
from veilcast.tree.streams import Answer
from veilcast.wire.geometry import BUNDLE_MAX, MOMENT_MAX, NOTE_ID
from veilcast.wire.tree import Carry, Install, Offer, Refused


@dataclass(slots=True, eq=False)
class Tree:
    """Of one wish. `told` has who was told whom to send to, so that it can be taken back."""

    wish: Wish
    name: bytes
    groups: Groups
    told: dict[bytes, Instruction]
    unheard: int = 0
    """Bundles that are not with their first node."""


@dataclass(slots=True, eq=False)
class Parcel:
    tree: Tree
    first: bytes
    install: Install
    tries: int = 0


class Paper:
    """A `Part`. Bounded: a tree for each wish, and as many parcels as its root has children."""

    copies: Final = 1

    def __init__(self, outfit: Outfit) -> None:
        config, keyring, rng = outfit.config, outfit.keyring, outfit.rng
        self._config, self._root, self._home = config, keyring.root, outfit.home
        self._streams, self._where, self._deliver = outfit.streams, outfit.where, outfit.deliver
        self._failed, self._rng, self._entropy = outfit.failed, rng, outfit.entropy
        self._topics = Topics(config.profile, keyring)
        self._wishes = Wishes(config.subscriptions_max)
        box = Keypair(keyring.membership.link)
        self._pouring = Pouring(config, box, outfit.hops, self._pass_by, self._arrive, rng, outfit.now)
        self.install, self.carry = self._pouring.install, self._pouring.carry
        self._listing = Listing(())
        self._trees: dict[bytes, Tree] = {}
        self._parcels: Alarms[Parcel] = Alarms()

    def offer(self, offer: Offer, now: int) -> int:
        """Nothing is charged: here offers also come on the streams on which nodes hand things on."""
        self._pouring.offer(offer, now)
        return 0

    def schema(self, topic: str, now: int) -> Schema:
        return self._topics.keys(topic, self._topics.epoch(now)).record.schema

    def offer_of(self, letter: Letter, now: int) -> Offer:
        keys = self._topics.keys(letter.topic, self._topics.epoch(now))
        groups = named_groups(letter.topic, asked(letter.content.publication, keys.record))
        labels = HEADERS.empty() if self._config.routing == "labels" else None
        return Offer(0, self._entropy(NOTE_ID), groups, labels, bare_note(keys, letter.content, self._entropy))

    def add(self, number: int, topic: str, interest: Conjunction, now: int) -> None:
        poured(interest, self._topics.keys(topic, self._topics.epoch(now)).record)
        self._plant(self._wishes.add(number, topic, interest, now), now)

    def remove(self, number: int, now: int) -> None:
        wish = self._wishes.remove(number)
        tree = next((each for each in self._trees.values() if each.wish is wish), None)
        if tree is None or wish.readers:
            return
        for parcel in [each for each in self._parcels if each.tree is tree]:
            self._parcels.drop(parcel)
        if self._config.counting:
            del self._trees[tree.name]
            self._send(tree, self._apart(tree, tree.told), now, removes=True)

    def listed(self, listing: Listing, now: int) -> None:
        self._listing = listing
        for wish in self._wishes:
            self._plant(wish, now)
        for tree in self._trees.values():
            there = [node for node in tree.told if node in listing]
            new = [node for node in listing.ids if node not in tree.told and node != self._home]
            told = {node: Instruction(tree.name, self._rng.choice([*there, self._home]), tree.name) for node in new}
            tree.told |= told
            self._send(tree, self._apart(tree, told), now)

    def next_us(self) -> int | None:
        return self._parcels.next_us()

    def handle(self, now: int) -> None:
        for parcel in self._parcels.due(now):
            self._try(parcel, now)

    def next_event(self) -> Event | None:
        return self._wishes.news.pop(0) if self._wishes.news else None

    def sizes(self) -> dict[str, int]:
        return {
            "entries": len(self._pouring),
            "seen": self._pouring.seen,
            "subscriptions": len(self._wishes),
            "parcels": len(self._parcels),
            "probes": 0,
        }

    # --- what comes to us

    def _pass_by(self, offer: Offer, now: int) -> None:
        """Whatever a node passes on it also looks at for itself."""
        elements = [frozenset(group) for group in offer.groups]
        near = [tree for tree in self._trees.values() if all(group & frozenset(tree.groups[0]) for group in elements)]
        for topic in dict.fromkeys(tree.wish.topic for tree in near):
            self._open(topic, offer.body, [tree.wish for tree in near if tree.wish.topic == topic], now)

    def _arrive(self, carry: Carry, now: int) -> bool:
        tree = self._trees.get(carry.entry)
        if tree is not None:
            self._open(tree.wish.topic, carry.body, [tree.wish], now)
        return tree is not None

    def _open(self, topic: str, body: bytes, wishes: list[Wish], now: int) -> None:
        try:
            epoch = self._topics.epoch(now)
            content = open_bare_note(self._topics.keys(topic, epoch), body, self._root, epoch)
        except Exception as error:
            self._failed(error)
        else:
            self._deliver(topic, content, wishes, now)

    # --- instructions

    def _plant(self, wish: Wish, now: int) -> None:
        home = self._listing.numbered(self._home)
        if home is None or any(tree.wish is wish for tree in self._trees.values()):
            return
        keys = self._topics.keys(wish.topic, self._topics.epoch(now))
        groups = named_groups(wish.topic, poured(wish.interest, keys.record))
        plan = Rooted(Secret(self._entropy(KEY)), self._listing.ids, root=home, r=self._config.depth)
        numbers = [plan.number(place) for place in range(1, len(self._listing))]
        told = {self._listing.ids[number]: plan.instruction(number) for number in numbers}
        tree = self._trees[plan.tree] = Tree(wish, plan.tree, groups, told)
        recipients = [self._recipient(node) for node in told]
        context = context_of(MOMENT_MAX, groups)
        if told:
            bundles = wrap_tree(recipients, list(told.values()), plan.b, self._entropy, context=context)
            self._send(tree, bundles, now)

    def _apart(self, tree: Tree, told: Mapping[bytes, Instruction]) -> list[tuple[bytes, bytes]]:
        """Bundles for these, each by itself."""
        context = context_of(MOMENT_MAX, tree.groups)
        return [
            (node, wrap_group([self._recipient(node)], [instruction], 1, self._entropy, context=context))
            for node, instruction in told.items()
            if node in self._listing
        ]

    def _send(self, tree: Tree, bundles: list[tuple[bytes, bytes]], now: int, *, removes: bool = False) -> None:
        if any(len(bundle) > BUNDLE_MAX for _, bundle in bundles):
            raise LocalError("there are too many nodes for bundles along the tree: take another depth")
        for first, bundle in bundles:
            install = Install(0, MOMENT_MAX, tree.groups, bundle, None, removes)
            tree.unheard += 1
            self._parcels.set(Parcel(tree, first, install), now + self._rng.randrange(self._config.spread_us + 1))

    def _try(self, parcel: Parcel, now: int) -> None:
        address = self._where(parcel.first)
        known = parcel.install

        def build(number: int) -> Install:
            return Install(number, known.until_us, known.groups, known.sealed, None, known.removes)

        def then(answer: Answer | None, now: int) -> None:
            if answer is None or isinstance(answer, Refused):
                self._later(parcel, now)
            else:
                self._heard(parcel.tree, now)

        peer = None if address is None else way(address, fresh(INSTALL, self._entropy))
        until_us = now + self._streams.patience_us
        if peer is None or not self._streams.ask(peer, build, then, until_us=until_us, linger_us=0, now=now):
            self._later(parcel, now)

    def _later(self, parcel: Parcel, now: int) -> None:
        parcel.tries += 1
        if parcel.tries < TRIES:
            self._parcels.set(parcel, now + backoff(self._rng, self._config.connect_us, parcel.tries))
        else:
            self._heard(parcel.tree, now)  # Whoever is gone is not waited for.

    def _heard(self, tree: Tree, now: int) -> None:
        tree.unheard -= 1
        if not tree.unheard and tree.wish.readers:
            self._wishes.stand(tree.wish, now)

    def _recipient(self, node: bytes) -> Recipient:
        number = self._listing.numbered(node)
        if number is None:
            raise LocalError("a node that is not listed")
        return Recipient(node, self._listing.boxes[number])


TRIES: Final = 8
