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
from typing import Final, TypeAlias

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
from veilcast.tree.delivery_tags import DeliveryTags
from veilcast.tree.guards import Guards
from veilcast.tree.installer import TreeInstaller
from veilcast.tree.instruction_bundles import Recipient
from veilcast.tree.listing import Listing
from veilcast.tree.live_tree import LiveTree, Stop
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


class TreeSubscriber:
    """Bounded: `subscriptions_max` subscriptions with the trees of three epochs each; as many trees without a
    subscription."""

    def __init__(
        self,
        config: TreeConfig,
        topics: MemberTopics,
        ends: DeliveryTags,
        epoch_us: int,
        home: bytes,
        guards: Guards,
        planting: TreeInstaller,
        rng: Random,
        entropy: Entropy,
    ) -> None:
        self._config, self._topics, self._ends, self._epoch_us, self._home = config, topics, ends, epoch_us, home
        self._guards, self._planting, self._rng, self._entropy = guards, planting, rng, entropy
        self._listing = Listing(())
        self._avoided: dict[bytes, int] = {}
        self._doubted: dict[bytes, None] = {}
        """Nodes through which no message has arrived since one was lost there: nothing new depends on them."""
        self.subscriptions = Subscriptions(config.subscriptions_max)
        self._terms: dict[tuple[SharedInterest, int], EpochTree] = {}
        self._alarms: Timers[_Due] = Timers()

    def current_trees(self, now: int) -> list[EpochTree]:
        """Trees of this epoch and later ones that serve a subscription."""
        return [term for term in self._standing(now) if term.interest.numbers]

    def add(self, number: int, topic: str, interest: Conjunction, now: int) -> None:
        """Add a subscription; `LocalError` for one that can never be installed."""
        epoch = self._topics.epoch(now)
        subscription_elements(interest, self._topics.keys(topic, epoch).record)
        wish = self.subscriptions.add(number, topic, interest, now)
        self._revive(wish)
        self._ends.open(wish, epoch - 1)  # Something may still be on its way to an earlier life.
        self._plant(wish, epoch, now)

    def remove(self, number: int) -> None:
        """The trees stand until they expire: a renewed subscription finds them, and installs no others."""
        self.subscriptions.remove(number)

    def update_listing(self, listing: Listing, now: int) -> None:
        """There is a new listing."""
        before, self._listing = self._listing, listing
        left = [node for node in before.ids if node not in listing]
        anew = [node for node in listing.ids if node in before and _since(listing, node) != _since(before, node)]
        for term in self._standing(now):
            tree = term.tree
            known = {tree.node(stop) for stop in tree.stops}
            new = [node for node in listing.ids if node not in known]
            # Who is new can wait, and who has forgotten all for a little: at one moment each would get instructions of
            # all trees of one subscriber, and could begin anew as often as it liked to see which these are.
            later_us = self._config.fetch_us // 2
            added = [tree.add(self._recipient(node), self._rng, self._is_unfit) for node in new]
            term.told_later |= dict.fromkeys(added, now + later_us + _HANDED_ON_US)
            self._tell(term, added, now, later_us)
            self._tell(term, [stop for node in anew for stop in tree.stops_of(node)], now, self._config.spread_us)
            for node in left:
                self._tell(term, tree.bypass(node), now)
                self._count_out(term, node, now)
        self._rehang(now)
        self._complete(now)

    def avoid(self, node: bytes, until_us: int, now: int) -> None:
        """Let no tree depend on this node until then."""
        if node in self._avoided:
            return
        self._avoided[node] = until_us
        while len(self._avoided) > self._few:
            self._give_chance(next(iter(self._avoided)))
        for term in self._standing(now):
            self._tell(term, term.tree.bypass(node), now)
            self._count_out(term, node, now)
        self._rehang(now)

    def doubt(self, node: bytes) -> None:
        """Let nothing new depend on this node before a message has arrived through it."""
        remember(self._doubted, node, None, self._few)

    def trust(self, node: bytes) -> None:
        """A message has arrived through this node."""
        self._doubted.pop(node, None)

    def move_to_other_parent(self, node: bytes, now: int) -> bool:
        """Attach this node to other parents, and its children beside it. False if it has no other parent anywhere.

        The node receives its instruction separately from its children: otherwise it would have to pass on that they
        leave it.
        """
        terms = self._standing(now)
        lifted = [(term, stop) for term in terms for at in term.tree.stops_of(node) for stop in term.tree.move_up(at)]
        if not lifted:
            return False
        self.doubt(node)
        for term, stop in lifted:
            self._tell(term, [stop], now)
        for term in terms:
            self._tell(term, term.tree.bypass(node), now)
        return True

    def avoids(self, node: bytes) -> bool:
        return node in self._avoided

    def reinstall(self, term: EpochTree, stop: Stop, now: int) -> None:
        """This stop does not know its instruction: send it again."""
        self._tell(term, [stop], now)

    def mark_reached(self, term: EpochTree, stop: Stop, now: int) -> None:
        """A message has arrived from this stop. Guards do not count: they are no origins."""
        if stop < 0:
            return
        term.reached[stop] = None
        enough = len(term.reached) >= self._config.ready_share * len(term.tree)
        if enough and self._config.probe_us:
            self._stand(term, now)

    def next_us(self) -> int | None:
        return self._alarms.next_us()

    def handle(self, now: int) -> None:
        for node in [node for node, until_us in self._avoided.items() if until_us <= now]:
            self._give_chance(node)
        for due in self._alarms.pop_due(now):
            if isinstance(due, EpochTree):
                self._forget(due)
            else:
                self._plant(due[0], due[1], now)
        if not self._config.probe_us:
            for term in self.current_trees(now):
                if not self._planting.has_pending(term.tree):
                    self._stand(term, now)

    # --- inside

    @property
    def _few(self) -> int:
        return max(1, len(self._listing) // AVOIDED_SHARE)

    def _give_chance(self, node: bytes) -> None:
        """Avoid the node no longer; it may show its behaviour where nothing depends on it."""
        del self._avoided[node]
        self.doubt(node)

    def _chain(self) -> tuple[bytes, ...]:
        return self._guards.chain(self._listing, self._avoided, self._doubted)

    def _standing(self, now: int) -> list[EpochTree]:
        epoch = self._topics.epoch(now)
        return [term for term in self._terms.values() if term.epoch >= epoch]

    def _revive(self, wish: SharedInterest) -> None:
        """A renewed interest takes over the trees of the earlier one; of the trees without a subscription, a limited
        number is kept."""
        for term in [each for each in self._terms.values() if each.interest.key == wish.key]:
            del self._terms[term.interest, term.epoch]
            term.interest = wish
            self._terms[wish, term.epoch] = term
            self._ends.open(wish, term.epoch)
        unwanted = [term for term in self._terms.values() if not term.interest.numbers]
        for term in unwanted[: max(0, len(unwanted) - self._config.subscriptions_max)]:
            self._forget(term)

    def _complete(self, now: int) -> None:
        """Every interest has a tree for this epoch, and a timer for the next."""
        epoch = self._topics.epoch(now)
        for wish in self.subscriptions:
            self._plant(wish, epoch, now)

    def _plant(self, wish: SharedInterest, epoch: int, now: int) -> None:
        if wish not in self.subscriptions:
            return
        self._ends.open(wish, epoch)
        if not self._is_planted(wish, epoch):
            with suppress(LocalError):  # Our grant does not reach so far.
                self._grow(wish, epoch, now)
        following = (wish, epoch + 1)
        if following not in self._alarms and not self._is_planted(*following):
            self._alarms.set(following, self._moment(epoch + 1, now))

    def _is_planted(self, wish: SharedInterest, epoch: int) -> bool:
        return (wish, epoch) in self._terms

    def _moment(self, epoch: int, now: int) -> int:
        """When the trees of this epoch are installed."""
        start_us, length_us = epoch * self._epoch_us, self._epoch_us
        first = start_us - length_us // 2
        last = max(first, start_us - self._config.ahead_us)
        return max(now + 1, first + self._rng.randrange(last - first + 1))

    def _grow(self, wish: SharedInterest, epoch: int, now: int) -> None:
        guards = self._chain()
        if not guards or self._home not in self._listing:
            return  # There is nobody yet, or nobody knows of us.
        keys = self._topics.keys(wish.topic, epoch)
        groups = _tags(wish.interest, keys)
        secret = derive(Secret(self._entropy(KEY)), b"vc/tree", wish.key)
        nodes, chain = ([self._recipient(node) for node in each] for each in (self._listing.ids, guards))
        end, hung = self._ends.open(wish, epoch), self._ends.chain_secret(wish, epoch)
        # What guards were told in an earlier life must not be later than what they are told now.
        count = (now - (epoch - 2) * self._epoch_us) // CHAIN_VERSION_US
        tree = LiveTree(secret, nodes, self._home, end, chain, self._config.depth, hung, count)
        until_us, probed_us = (epoch + 2) * self._epoch_us, now + self._config.spread_us + _HANDED_ON_US
        term = EpochTree(wish, epoch, tree, groups, until_us, probed_us)
        self._terms[wish, epoch] = term
        self._alarms.set(term, term.until_us)
        self._count_out(term, self._home, now)
        for node in self._avoided:
            tree.bypass(node)
            self._count_out(term, node, now)
        for node in self._doubted:
            tree.bypass(node)
        self._planting.install_tree(tree, groups, term.until_us, now)

    def _rehang(self, now: int) -> None:
        """Attach all trees to the current guards."""
        guards = self._chain()
        for term in self._standing(now):
            for stop, guard in zip(term.tree.chain, guards, strict=False):
                if term.tree.node(stop) != guard:
                    self._tell(term, term.tree.replace_guard(stop, self._recipient(guard)), now)

    def _tell(self, term: EpochTree, stops: Sequence[Stop], now: int, within_us: int = 0) -> None:
        if stops:
            self._planting.update_stops(term.tree, stops, term.groups, term.until_us, now, within_us)

    def _is_unfit(self, node: bytes) -> bool:
        return node in self._avoided or node in self._doubted or node not in self._listing

    def _stand(self, term: EpochTree, now: int) -> None:
        if term.epoch <= self._topics.epoch(now):
            self.subscriptions.activate(term.interest, now)

    def _count_out(self, term: EpochTree, node: bytes, now: int) -> None:
        """Wait for no message from this node."""
        for stop in term.tree.stops_of(node):
            self.mark_reached(term, stop, now)

    def _forget(self, term: EpochTree) -> None:
        self._terms.pop((term.interest, term.epoch), None)
        self._alarms.cancel(term)
        self._planting.drop_tree(term.tree)

    def _recipient(self, node: bytes) -> Recipient:
        number = self._listing.numbered(node)
        if number is None:
            raise LocalError("a node that is not listed")
        return Recipient(node, self._listing.boxes[number])


def _tags(interest: Conjunction, keys: TopicKeys) -> ElementGroups:
    """The same tags for all subscribers with this interest: individual fillers would identify the tree."""
    key = derive_element_key(keys, b"tree")
    plain = key_groups(key, subscription_elements(interest, keys.record), TAG)
    own = derive(key, b"vc/tree-unwanted", *(tag for group in plain for tag in group))
    return pad_groups(plain, lambda place: key_element(own, b"%d" % place, TAG))


def _since(listing: Listing, node: bytes) -> int | None:
    """When the node was last started, as far as is known."""
    number = listing.numbered(node)
    return None if number is None else listing.since[number]


_Due: TypeAlias = EpochTree | tuple[SharedInterest, int]
"""An expired tree, or one to be installed."""
AVOIDED_SHARE: Final = 3
"""At most one in this many nodes is avoided, and one doubted. A subscriber that finds fault with more has been away
itself, and gives the nodes it suspected first another chance.
"""
CHAIN_VERSION_US: Final = 1_000_000
"""Versions of a chain are counted from its installation time, in units of this many microseconds."""
_HANDED_ON_US: Final = 1_000_000
"""Time for the last node of a group to receive its instruction, after the first has."""
