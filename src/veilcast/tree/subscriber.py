"""The subscriber: the interests of a node's owner, and the trees that serve them, one for each epoch.

A tree stands from some time before its epoch to the end of the following one. The next tree is installed at a random
moment of the second half of an epoch, so that the trees of one subscriber have nothing in common, not even the time. A
tree expires by itself; a withdrawn subscription is only not renewed.

The subscriber maintains its trees while they stand. A restarted node receives its instructions again, a newcomer is
attached below an earlier node, and no path uses nodes that have left or are avoided.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from random import Random
from typing import Final, NamedTuple, TypeAlias

from veilcast.authority.keyring import TopicKeys
from veilcast.core.bounded import remember
from veilcast.core.match_elements import (
    ElementGroups,
    derive_element_key,
    key_element,
    key_groups,
    subscription_elements,
)
from veilcast.core.member_topics import MemberTopics
from veilcast.core.size_classes import pad_groups
from veilcast.core.subscriptions import SharedInterest, Subscriptions
from veilcast.core.timers import Timers
from veilcast.crypto.derive import derive
from veilcast.crypto.seal import KEY
from veilcast.crypto.secret import Secret
from veilcast.errors import LocalError
from veilcast.machine import Entropy
from veilcast.topics import Conjunction
from veilcast.tree.config import TreeConfig
from veilcast.tree.delivery_tags import DeliveryTag, DeliveryTags
from veilcast.tree.guards import Guards
from veilcast.tree.installer import TreeInstaller
from veilcast.tree.instruction_bundles import Recipient
from veilcast.tree.listing import Listing
from veilcast.tree.live_tree import LiveTree, Stop, guard_token
from veilcast.tree.routing_table import entry_name
from veilcast.wire.geometry import TAG


@dataclass(slots=True, eq=False)
class EpochTree:
    """The tree of one interest for one epoch."""

    interest: SharedInterest
    epoch: int
    tree: LiveTree
    groups: ElementGroups
    until_us: int
    probe_from_us: int
    """When all nodes should have their instructions and probes begin."""
    rounds: int = 0
    """How often all its nodes have been probed."""
    reached: dict[Stop, None] = field(default_factory=dict)
    """Stops from which a message has reached the subscriber."""
    told_later: dict[Stop, int] = field(default_factory=dict)
    """Stops of nodes that were listed later, and the time when their instructions have arrived."""

    def is_new(self, now: int) -> bool:
        """True if some stops should have their instructions and have not been reached yet."""
        excused = sum(when > now and stop not in self.reached for stop, when in self.told_later.items())
        return len(self.reached) + excused < len(self.tree)

    def unreached_stops(self, now: int) -> list[Stop]:
        """Stops that should have their instructions and have not been reached yet."""
        return [stop for stop in self.tree.stops if stop not in self.reached and self.told_later.get(stop, 0) <= now]


class _Avoidance(NamedTuple):
    until_us: int
    weight: float
    """Evidence that the node drops messages; 0 for an absent node."""


class TreeSubscriber:
    """Bounded: `subscriptions_max` subscriptions with the trees of three epochs each; as many trees without a
    subscription."""

    def __init__(
        self,
        config: TreeConfig,
        topics: MemberTopics,
        delivery_tags: DeliveryTags,
        epoch_us: int,
        home: bytes,
        guards: Guards,
        installer: TreeInstaller,
        rng: Random,
        entropy: Entropy,
        stand: int = 0,
    ) -> None:
        """`stand` is the number of guards before this node, if there is a tail."""
        self._stand, self._behind = stand, b""
        self._config, self._topics, self._delivery_tags, self._epoch_us, self._home = (
            config,
            topics,
            delivery_tags,
            epoch_us,
            home,
        )
        self._guards, self._installer, self._rng, self._entropy = guards, installer, rng, entropy
        self._listing = Listing(())
        self._avoided: dict[bytes, _Avoidance] = {}
        self._doubted: dict[bytes, None] = {}
        """Nodes through which no message has arrived since one was lost there: nothing new depends on them."""
        self.subscriptions = Subscriptions(config.subscriptions_max)
        self._trees: dict[tuple[SharedInterest, int], EpochTree] = {}
        self._timers: Timers[_Due] = Timers()

    def current_trees(self, now: int) -> list[EpochTree]:
        """Trees of this epoch and later ones that serve a subscription."""
        return [epoch_tree for epoch_tree in self._standing_trees(now) if epoch_tree.interest.numbers]

    def add(self, number: int, topic: str, interest: Conjunction, now: int) -> None:
        """Add a subscription; `LocalError` for one that can never be installed."""
        epoch = self._topics.epoch(now)
        subscription_elements(interest, self._topics.keys(topic, epoch).record)
        shared = self.subscriptions.add(number, topic, interest, now)
        self._revive(shared)
        self._delivery_tags.open(shared, epoch - 1)  # A message to an earlier run may still be in flight.
        self._install(shared, epoch, now)

    def remove(self, number: int) -> None:
        """The trees stand until they expire: a renewed subscription finds them, and installs no others."""
        self.subscriptions.remove(number)

    def update_listing(self, listing: Listing, now: int) -> None:
        """There is a new listing."""
        before, self._listing = self._listing, listing
        left = [node for node in before.ids if node not in listing]
        restarted = [
            node for node in listing.ids if node in before and _started_us(listing, node) != _started_us(before, node)
        ]
        for epoch_tree in self._standing_trees(now):
            tree = epoch_tree.tree
            known = {tree.node(stop) for stop in tree.stops}
            new = [node for node in listing.ids if node not in known]
            # Instructions to newcomers can wait, and those to restarted nodes a little. If all left at one moment, such
            # a node could tell which trees have one subscriber, and restart repeatedly to see it again.
            later_us = self._config.fetch_us // 2
            added = [tree.add(self._recipient(node), self._rng, self._is_unfit) for node in new]
            epoch_tree.told_later |= dict.fromkeys(added, now + later_us + _HANDED_ON_US)
            self._update(epoch_tree, added, now, later_us)
            self._update(
                epoch_tree, [stop for node in restarted for stop in tree.stops_of(node)], now, self._config.spread_us
            )
            for node in left:
                self._update(epoch_tree, tree.bypass(node), now)
                self._count_out(epoch_tree, node, now)
        self._rehang(now)
        self._complete(now)

    def avoid(self, node: bytes, until_us: int, now: int, weight: float = 0.0) -> None:
        """Let no tree depend on this node until then. `weight` is the evidence that it drops messages; 0 for an absent
        node."""
        if node in self._avoided:
            return
        earlier = list(self._avoided)
        self._avoided[node] = _Avoidance(until_us, weight)
        while len(self._avoided) > self._few_nodes and earlier:
            # An absent node is found again at once, a node that drops messages after many probes.
            least = min(earlier, key=lambda each: self._avoided[each].weight)
            earlier.remove(least)
            self._give_chance(least)
        for epoch_tree in self._standing_trees(now):
            self._update(epoch_tree, epoch_tree.tree.bypass(node), now)
            self._count_out(epoch_tree, node, now)
        self._rehang(now)

    def doubt(self, node: bytes) -> None:
        """Let nothing new depend on this node before a message has arrived through it."""
        remember(self._doubted, node, None, self._few_nodes)

    def trust(self, node: bytes) -> None:
        """A message has arrived through this node."""
        self._doubted.pop(node, None)

    def move_to_other_parent(self, node: bytes, now: int) -> bool:
        """Attach this node to other parents, and its children beside it. False if it has no other parent anywhere.

        The node receives its instruction separately from its children: otherwise it would have to pass on that they
        leave it.
        """
        epoch_trees = self._standing_trees(now)
        lifted = [
            (epoch_tree, stop)
            for epoch_tree in epoch_trees
            for at in epoch_tree.tree.stops_of(node)
            for stop in epoch_tree.tree.move_up(at)
        ]
        if not lifted:
            return False
        self.doubt(node)
        for epoch_tree, stop in lifted:
            self._update(epoch_tree, [stop], now)
        for epoch_tree in epoch_trees:
            self._update(epoch_tree, epoch_tree.tree.bypass(node), now)
        return True

    def avoids(self, node: bytes) -> bool:
        return node in self._avoided

    def reinstall(self, epoch_tree: EpochTree, stop: Stop, now: int) -> None:
        """This stop does not know its instruction: send it again."""
        self._update(epoch_tree, [stop], now)

    def mark_reached(self, epoch_tree: EpochTree, stop: Stop, now: int) -> None:
        """A message has arrived from this stop. Guards do not count: they are no origins."""
        if stop < 0:
            return
        epoch_tree.reached[stop] = None
        enough = len(epoch_tree.reached) >= self._config.ready_share * len(epoch_tree.tree)
        if enough and self._config.probe_us:
            self._activate(epoch_tree, now)

    def next_us(self) -> int | None:
        return self._timers.next_us()

    def handle(self, now: int) -> None:
        for node in [node for node, avoidance in self._avoided.items() if avoidance.until_us <= now]:
            self._give_chance(node)
        for due in self._timers.pop_due(now):
            if isinstance(due, EpochTree):
                self._forget(due)
            else:
                self._install(due[0], due[1], now)
        if not self._config.probe_us:
            for epoch_tree in self.current_trees(now):
                if not self._installer.has_pending(epoch_tree.tree):
                    self._activate(epoch_tree, now)

    # --- inside

    @property
    def _few_nodes(self) -> int:
        return max(1, len(self._listing) // AVOIDED_SHARE)

    def _give_chance(self, node: bytes) -> None:
        """Avoid the node no longer; it may show its behaviour where nothing depends on it."""
        del self._avoided[node]
        self.doubt(node)

    def behind(self, tag: DeliveryTag) -> tuple[bytes, bytes] | None:
        """The node behind this one on the chain to this tag, and its entry; None without a tail."""
        if not self._behind:
            return None
        secret = self._delivery_tags.chain_secret(tag.interest, tag.epoch)
        return self._behind, entry_name(guard_token(secret, self._stand, self._behind))

    def _chain(self) -> tuple[tuple[bytes, ...], tuple[bytes, ...]]:
        """The guards before this node, and those behind it. In a network that is too small for a tail there is none."""
        guards = self._guards.chain(self._listing, self._avoided, self._doubted)
        before = self._stand if self._stand and len(guards) == self._guards.most else self._config.chain
        self._behind = guards[before] if before < len(guards) and before == self._stand else b""
        return guards[:before], guards[before:] if self._behind else ()

    def _standing_trees(self, now: int) -> list[EpochTree]:
        epoch = self._topics.epoch(now)
        return [epoch_tree for epoch_tree in self._trees.values() if epoch_tree.epoch >= epoch]

    def _revive(self, shared: SharedInterest) -> None:
        """A renewed interest takes over the trees of the earlier one; of the trees without a subscription, a limited
        number is kept."""
        for epoch_tree in [each for each in self._trees.values() if each.interest.key == shared.key]:
            del self._trees[epoch_tree.interest, epoch_tree.epoch]
            epoch_tree.interest = shared
            self._trees[shared, epoch_tree.epoch] = epoch_tree
            self._delivery_tags.open(shared, epoch_tree.epoch)
        unwanted = [epoch_tree for epoch_tree in self._trees.values() if not epoch_tree.interest.numbers]
        for epoch_tree in unwanted[: max(0, len(unwanted) - self._config.subscriptions_max)]:
            self._forget(epoch_tree)

    def _complete(self, now: int) -> None:
        """Every interest has a tree for this epoch, and a timer for the next."""
        epoch = self._topics.epoch(now)
        for shared in self.subscriptions:
            self._install(shared, epoch, now)

    def _install(self, shared: SharedInterest, epoch: int, now: int) -> None:
        if shared not in self.subscriptions:
            return
        self._delivery_tags.open(shared, epoch)
        if not self._is_installed(shared, epoch):
            with suppress(LocalError):  # The grant does not cover that epoch.
                self._grow_tree(shared, epoch, now)
        following = (shared, epoch + 1)
        if following not in self._timers and not self._is_installed(*following):
            self._timers.set(following, self._moment(epoch + 1, now))

    def _is_installed(self, shared: SharedInterest, epoch: int) -> bool:
        return (shared, epoch) in self._trees

    def _moment(self, epoch: int, now: int) -> int:
        """When the trees of this epoch are installed."""
        start_us, length_us = epoch * self._epoch_us, self._epoch_us
        first = start_us - length_us // 2
        last = max(first, start_us - self._config.ahead_us)
        return max(now + 1, first + self._rng.randrange(last - first + 1))

    def _grow_tree(self, shared: SharedInterest, epoch: int, now: int) -> None:
        guards, tail = self._chain()
        if not guards or self._home not in self._listing:
            return  # No other node is listed yet, or this one is not.
        keys = self._topics.keys(shared.topic, epoch)
        groups = _tags(shared.interest, keys)
        secret = derive(Secret(self._entropy(KEY)), b"vc/tree", shared.key)
        nodes, chain, rest = ([self._recipient(node) for node in each] for each in (self._listing.ids, guards, tail))
        tag, chain_secret = self._delivery_tags.open(shared, epoch), self._delivery_tags.chain_secret(shared, epoch)
        # The guards' instructions of an earlier run must not have a later end than the present ones.
        count = (now - (epoch - 2) * self._epoch_us) // CHAIN_VERSION_US
        tree = LiveTree(secret, nodes, self._home, tag, chain, self._config.depth, chain_secret, count, rest)
        until_us, probed_us = (epoch + 2) * self._epoch_us, now + self._config.spread_us + _HANDED_ON_US
        epoch_tree = EpochTree(shared, epoch, tree, groups, until_us, probed_us)
        self._trees[shared, epoch] = epoch_tree
        self._timers.set(epoch_tree, epoch_tree.until_us)
        self._count_out(epoch_tree, self._home, now)
        for node in self._avoided:
            tree.bypass(node)
            self._count_out(epoch_tree, node, now)
        for node in self._doubted:
            tree.bypass(node)
        self._installer.install_tree(tree, groups, epoch_tree.until_us, now)

    def _rehang(self, now: int) -> None:
        """Attach all trees to the current guards."""
        guards, tail = self._chain()
        for epoch_tree in self._standing_trees(now):
            tree = epoch_tree.tree
            pairs = [*zip(tree.chain, guards, strict=False), *zip(tree.tail, tail, strict=False)]
            for stop, guard in pairs:
                if epoch_tree.tree.node(stop) != guard:
                    self._update(epoch_tree, epoch_tree.tree.replace_guard(stop, self._recipient(guard)), now)

    def _update(self, epoch_tree: EpochTree, stops: Sequence[Stop], now: int, within_us: int = 0) -> None:
        if stops:
            self._installer.update_stops(epoch_tree.tree, stops, epoch_tree.groups, epoch_tree.until_us, now, within_us)

    def _is_unfit(self, node: bytes) -> bool:
        return node in self._avoided or node in self._doubted or node not in self._listing

    def _activate(self, epoch_tree: EpochTree, now: int) -> None:
        if epoch_tree.epoch <= self._topics.epoch(now):
            self.subscriptions.activate(epoch_tree.interest, now)

    def _count_out(self, epoch_tree: EpochTree, node: bytes, now: int) -> None:
        """Wait for no message from this node."""
        for stop in epoch_tree.tree.stops_of(node):
            self.mark_reached(epoch_tree, stop, now)

    def _forget(self, epoch_tree: EpochTree) -> None:
        self._trees.pop((epoch_tree.interest, epoch_tree.epoch), None)
        self._timers.cancel(epoch_tree)
        self._installer.drop_tree(epoch_tree.tree)

    def _recipient(self, node: bytes) -> Recipient:
        number = self._listing.index_of(node)
        if number is None:
            raise LocalError("a node that is not listed")
        return Recipient(node, self._listing.boxes[number])


def _tags(interest: Conjunction, keys: TopicKeys) -> ElementGroups:
    """The same tags for all subscribers with this interest: individual fillers would identify the tree."""
    key = derive_element_key(keys, b"tree")
    keyed = key_groups(key, subscription_elements(interest, keys.record), TAG)
    filler_key = derive(key, b"vc/tree-unwanted", *(tag for group in keyed for tag in group))
    return pad_groups(keyed, lambda place: key_element(filler_key, b"%d" % place, TAG))


def _started_us(listing: Listing, node: bytes) -> int | None:
    """When the node was last started, as far as is known."""
    number = listing.index_of(node)
    return None if number is None else listing.since[number]


_Due: TypeAlias = EpochTree | tuple[SharedInterest, int]
"""An expired tree, or one to be installed."""
AVOIDED_SHARE: Final = 3
"""At most one in this many nodes is avoided, and one doubted. A subscriber that finds fault with more has been away
itself, and gives the nodes with the least evidence against them another chance.
"""
CHAIN_VERSION_US: Final = 1_000_000
"""Versions of a chain are counted from its installation time, in units of this many microseconds."""
_HANDED_ON_US: Final = 1_000_000
"""Time for the last node of a group to receive its instruction, after the first has."""
