"""The paper's profile of a node (P2 4.2, to the letter): used to show its flaws and to measure its cost.

A subscriber is the root of its own tree. Instructions travel along that tree, in layers that get smaller from hop to
hop. Topics are plain. A subscription never expires by itself, and can be withdrawn only with counting filters. Nothing
is probed or repaired. A node that is listed later is attached below an earlier one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from veilcast.core.connector import backoff
from veilcast.core.match_elements import (
    ElementGroups,
    paper_publication_elements,
    paper_subscription_elements,
    qualify_groups,
)
from veilcast.core.member_topics import MemberTopics
from veilcast.core.outbox import PendingPublication
from veilcast.core.sealed_notification import decode_notification, encode_notification
from veilcast.core.stream_purpose import name_stream
from veilcast.core.subscriptions import SharedInterest, Subscriptions
from veilcast.core.timers import Timers
from veilcast.crypto.noise import Keypair
from veilcast.crypto.seal import KEY
from veilcast.crypto.secret import Secret
from veilcast.errors import LocalError
from veilcast.machine import Event
from veilcast.topics import Conjunction, Schema
from veilcast.tree.instruction_bundles import Instruction, Recipient, wrap_group, wrap_tree
from veilcast.tree.layout import PaperLayout
from veilcast.tree.listing import Listing
from veilcast.tree.membership_proof import bundle_context
from veilcast.tree.paper_router import LABEL_HEADER, PaperRouter
from veilcast.tree.profile import TreeProfileContext
from veilcast.tree.streams import INSTALL_STREAM, Answer, fresh_purpose
from veilcast.wire.geometry import BUNDLE_MAX, MOMENT_MAX, NOTE_ID
from veilcast.wire.tree import ForwardPublication, Install, Offer, RequestRefused


@dataclass(slots=True, eq=False)
class PaperTree:
    """The tree of one interest. `instructions` holds the instruction of each node, so that it can be withdrawn."""

    interest: SharedInterest
    name: bytes
    groups: ElementGroups
    instructions: dict[bytes, Instruction]
    unconfirmed: int = 0
    """Bundles that their first node has not confirmed."""


@dataclass(slots=True, eq=False)
class PaperParcel:
    tree: PaperTree
    first: bytes
    install: Install
    tries: int = 0


class PaperTreeProfile:
    """A `TreeProfile`. Bounded: one tree for each interest, and as many parcels as its root has children."""

    copies: Final = 1

    def __init__(self, context: TreeProfileContext) -> None:
        config, keyring, rng = context.config, context.keyring, context.rng
        self._config, self._root, self._home = config, keyring.root, context.home
        self._streams, self._address_of, self._deliver = context.streams, context.address_of, context.deliver
        self._on_error, self._rng, self._entropy = context.on_error, rng, context.entropy
        self._topics = MemberTopics(config.profile, keyring)
        self._subscriptions = Subscriptions(config.subscriptions_max)
        box = Keypair(keyring.membership.link)
        self._router = PaperRouter(config, box, context.hops, self._read_passing, self._arrive, rng, context.now)
        self.install, self.forward = self._router.install, self._router.forward
        self._listing = Listing(())
        self._trees: dict[bytes, PaperTree] = {}
        self._parcels: Timers[PaperParcel] = Timers()

    def offer(self, offer: Offer, now: int) -> int:
        """Charges nothing: in this profile, offers also arrive on the streams on which nodes forward."""
        self._router.offer(offer, now)
        return 0

    def schema(self, topic: str, now: int) -> Schema:
        return self._topics.keys(topic, self._topics.epoch(now)).record.schema

    def build_offer(self, pending: PendingPublication, now: int) -> Offer:
        keys = self._topics.keys(pending.topic, self._topics.epoch(now))
        groups = qualify_groups(pending.topic, paper_publication_elements(pending.content.publication, keys.record))
        labels = LABEL_HEADER.empty() if self._config.routing == "labels" else None
        return Offer(
            0, self._entropy(NOTE_ID), groups, labels, encode_notification(keys, pending.content, self._entropy)
        )

    def add(self, number: int, topic: str, interest: Conjunction, now: int) -> None:
        paper_subscription_elements(interest, self._topics.keys(topic, self._topics.epoch(now)).record)
        self._install_tree(self._subscriptions.add(number, topic, interest, now), now)

    def remove(self, number: int, now: int) -> None:
        shared = self._subscriptions.remove(number)
        tree = next((each for each in self._trees.values() if each.interest is shared), None)
        if tree is None or shared.numbers:
            return
        for parcel in [each for each in self._parcels if each.tree is tree]:
            self._parcels.cancel(parcel)
        if self._config.counting:
            del self._trees[tree.name]
            self._send(tree, self._wrap_each(tree, tree.instructions), now, removes=True)

    def update_listing(self, listing: Listing, now: int) -> None:
        self._listing = listing
        for shared in self._subscriptions:
            self._install_tree(shared, now)
        for tree in self._trees.values():
            listed = [node for node in tree.instructions if node in listing]
            new = [node for node in listing.ids if node not in tree.instructions and node != self._home]
            instructions = {
                node: Instruction(tree.name, self._rng.choice([*listed, self._home]), tree.name) for node in new
            }
            tree.instructions |= instructions
            self._send(tree, self._wrap_each(tree, instructions), now)

    def next_us(self) -> int | None:
        return self._parcels.next_us()

    def handle(self, now: int) -> None:
        for parcel in self._parcels.pop_due(now):
            self._try(parcel, now)

    def next_event(self) -> Event | None:
        return self._subscriptions.notices.pop(0) if self._subscriptions.notices else None

    def sizes(self) -> dict[str, int]:
        return {
            "entries": len(self._router),
            "seen": self._router.seen_count,
            "subscriptions": len(self._subscriptions),
            "parcels": len(self._parcels),
            "probes": 0,
        }

    # --- what comes to us

    def _read_passing(self, offer: Offer, now: int) -> None:
        """A node also reads every message that it forwards."""
        elements = [frozenset(group) for group in offer.groups]
        matching = [
            tree for tree in self._trees.values() if all(group & frozenset(tree.groups[0]) for group in elements)
        ]
        for topic in dict.fromkeys(tree.interest.topic for tree in matching):
            self._open(topic, offer.body, [tree.interest for tree in matching if tree.interest.topic == topic], now)

    def _arrive(self, carry: ForwardPublication, now: int) -> bool:
        tree = self._trees.get(carry.entry)
        if tree is not None:
            self._open(tree.interest.topic, carry.body, [tree.interest], now)
        return tree is not None

    def _open(self, topic: str, body: bytes, interests: list[SharedInterest], now: int) -> None:
        try:
            epoch = self._topics.epoch(now)
            content = decode_notification(self._topics.keys(topic, epoch), body, self._root, epoch)
        except Exception as error:
            self._on_error(error)
        else:
            self._deliver(topic, content, interests, now)

    # --- instructions

    def _install_tree(self, shared: SharedInterest, now: int) -> None:
        home = self._listing.index_of(self._home)
        if home is None or any(tree.interest is shared for tree in self._trees.values()):
            return
        keys = self._topics.keys(shared.topic, self._topics.epoch(now))
        groups = qualify_groups(shared.topic, paper_subscription_elements(shared.interest, keys.record))
        layout = PaperLayout(Secret(self._entropy(KEY)), self._listing.ids, root=home, r=self._config.depth)
        numbers = [layout.node_at(place) for place in range(1, len(self._listing))]
        instructions = {self._listing.ids[number]: layout.instruction(number) for number in numbers}
        tree = self._trees[layout.tree] = PaperTree(shared, layout.tree, groups, instructions)
        recipients = [self._recipient(node) for node in instructions]
        context = bundle_context(MOMENT_MAX, groups)
        if instructions:
            bundles = wrap_tree(
                recipients, list(instructions.values()), layout.branching, self._entropy, context=context
            )
            self._send(tree, bundles, now)

    def _wrap_each(self, tree: PaperTree, instructions: Mapping[bytes, Instruction]) -> list[tuple[bytes, bytes]]:
        """One bundle for each of these nodes."""
        context = bundle_context(MOMENT_MAX, tree.groups)
        return [
            (node, wrap_group([self._recipient(node)], [instruction], 1, self._entropy, context=context))
            for node, instruction in instructions.items()
            if node in self._listing
        ]

    def _send(self, tree: PaperTree, bundles: list[tuple[bytes, bytes]], now: int, *, removes: bool = False) -> None:
        if any(len(bundle) > BUNDLE_MAX for _, bundle in bundles):
            raise LocalError("there are too many nodes for bundles along the tree: take another depth")
        for first, bundle in bundles:
            install = Install(0, MOMENT_MAX, tree.groups, bundle, None, removes)
            tree.unconfirmed += 1
            self._parcels.set(PaperParcel(tree, first, install), now + self._rng.randrange(self._config.spread_us + 1))

    def _try(self, parcel: PaperParcel, now: int) -> None:
        address = self._address_of(parcel.first)
        known = parcel.install

        def build(number: int) -> Install:
            return Install(number, known.until_us, known.groups, known.sealed, None, known.removes)

        def then(answer: Answer | None, now: int) -> None:
            if answer is None or isinstance(answer, RequestRefused):
                self._retry_later(parcel, now)
            else:
                self._confirm(parcel.tree, now)

        peer = None if address is None else name_stream(address, fresh_purpose(INSTALL_STREAM, self._entropy))
        until_us = now + self._streams.patience_us
        if peer is None or not self._streams.request(peer, build, then, until_us=until_us, linger_us=0, now=now):
            self._retry_later(parcel, now)

    def _retry_later(self, parcel: PaperParcel, now: int) -> None:
        parcel.tries += 1
        if parcel.tries < TRIES_MAX:
            self._parcels.set(parcel, now + backoff(self._rng, self._config.connect_us, parcel.tries))
        else:
            self._confirm(parcel.tree, now)  # Do not wait for an absent node.

    def _confirm(self, tree: PaperTree, now: int) -> None:
        tree.unconfirmed -= 1
        if not tree.unconfirmed and tree.interest.numbers:
            self._subscriptions.activate(tree.interest, now)

    def _recipient(self, node: bytes) -> Recipient:
        number = self._listing.index_of(node)
        if number is None:
            raise LocalError("a node that is not listed")
        return Recipient(node, self._listing.boxes[number])


TRIES_MAX: Final = 8
