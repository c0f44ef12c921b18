"""The installer: sends the nodes of a subscriber's tree their instructions without revealing the subscriber.

Nodes receive their instructions in groups. The instructions of a group are wrapped in layers. They travel through the
anonymous network, on a stream of their own, to the first node of the group, which passes the rest on. All messages are
padded to one size and leave one by one at random moments. If the first node does not answer, another node of the group
is first at the next attempt.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Final

from veilcast.core.connector import backoff
from veilcast.core.match_elements import ElementGroups
from veilcast.core.stream_purpose import name_stream
from veilcast.core.timers import Timers
from veilcast.errors import RemoteError
from veilcast.machine import Address, Entropy
from veilcast.tree.config import TreeConfig
from veilcast.tree.instruction_bundles import wrap_group
from veilcast.tree.live_tree import LiveTree, Stop
from veilcast.tree.membership_proof import MembershipProver, bundle_context
from veilcast.tree.streams import INSTALL_STREAM as FOR_INSTALL
from veilcast.tree.streams import Answer, RequestStreams, fresh_purpose
from veilcast.wire.geometry import INSTALL_BLOCK
from veilcast.wire.padding import pad
from veilcast.wire.tree import Install, RefusalCode, RequestRefused


@dataclass(slots=True, eq=False)
class InstallParcel:
    """Instructions for some stops of one tree, until the first of them has confirmed."""

    tree: LiveTree
    stops: tuple[Stop, ...]
    groups: ElementGroups
    until_us: int
    tries: int = 0


class TreeInstaller:
    """Bounded by its callers: a tree of n nodes is n / `group` parcels, and each is tried a few times."""

    def __init__(
        self,
        config: TreeConfig,
        streams: RequestStreams,
        prover: MembershipProver,
        home: bytes,
        address_of: Callable[[bytes], Address | None],
        install_own: Callable[[Install, int], None],
        rng: Random,
        entropy: Entropy,
    ) -> None:
        """`install_own` handles instructions for this node itself."""
        self._config, self._streams, self._prover, self._home = config, streams, prover, home
        self._address_of, self._install_own, self._rng, self._entropy = address_of, install_own, rng, entropy
        self._timers: Timers[InstallParcel] = Timers()
        self._in_flight: dict[InstallParcel, None] = {}

    def __len__(self) -> int:
        return len(self._timers) + len(self._in_flight)

    def has_pending(self, tree: LiveTree) -> bool:
        """True if parcels of this tree are waiting or unconfirmed."""
        return any(parcel.tree is tree for parcel in (*self._timers, *self._in_flight))

    def install_tree(self, tree: LiveTree, groups: ElementGroups, until_us: int, now: int) -> None:
        """Send the instructions of a new tree to all its stops."""
        parcels = [*tree.groups(self._config.group), *((stop,) for stop in (*tree.chain, *tree.tail))]
        self._schedule(tree, parcels, groups, until_us, self._config.spread_us, now)

    def update_stops(
        self, tree: LiveTree, stops: Sequence[Stop], groups: ElementGroups, until_us: int, now: int, within_us: int = 0
    ) -> None:
        """Send instructions to some stops of an installed tree, within this time. Guards receive theirs one by one,
        as before."""
        places = [stop for stop in dict.fromkeys(stops) if stop >= 0]
        self._rng.shuffle(places)
        size = self._config.group
        parcels = [tuple(places[start : start + size]) for start in range(0, len(places), size)]
        parcels += [(stop,) for stop in dict.fromkeys(stops) if stop < 0]
        self._schedule(tree, parcels, groups, until_us, within_us, now)

    def drop_tree(self, tree: LiveTree) -> None:
        for parcel in [each for each in self._timers if each.tree is tree]:
            self._timers.cancel(parcel)

    def next_us(self) -> int | None:
        return self._timers.next_us()

    def handle(self, now: int) -> None:
        for parcel in self._timers.pop_due(now):
            self._send(parcel, now)

    def _schedule(
        self,
        tree: LiveTree,
        parcels: Sequence[tuple[Stop, ...]],
        groups: ElementGroups,
        until_us: int,
        within_us: int,
        now: int,
    ) -> None:
        for stops in parcels:
            parcel = InstallParcel(tree, stops, tree.tags_for(stops[0], groups), until_us + tree.version_of(stops))
            self._timers.set(parcel, now + self._rng.randrange(within_us + 1))
            for own in [stop for stop in stops if tree.node(stop) == self._home]:
                # This node installs its own entry at once. Its group still includes it: others would notice the gap.
                self._install_here(parcel, [own], now)

    def _send(self, parcel: InstallParcel, now: int) -> None:
        stops = self._rotate(parcel)
        if not stops:
            return
        first = parcel.tree.node(stops[0])
        if first == self._home:
            if not self._install_here(parcel, stops, now):
                self._retry_later(parcel, now)
            return
        address = self._address_of(first)
        peer = None if address is None else name_stream(address, fresh_purpose(FOR_INSTALL, self._entropy))

        def build(number: int) -> Install:
            return self._wrap(parcel, stops, number)

        def on_answer(answer: Answer | None, now: int) -> None:
            self._in_flight.pop(parcel, None)
            if answer is None or (isinstance(answer, RequestRefused) and answer.code != RefusalCode.MALFORMED):
                self._retry_later(parcel, now)

        until_us = now + self._streams.patience_us
        self._in_flight[parcel] = None
        if peer is None or not self._streams.request(peer, build, on_answer, until_us=until_us, linger_us=0, now=now):
            self._in_flight.pop(parcel, None)
            self._retry_later(parcel, now)

    def _retry_later(self, parcel: InstallParcel, now: int) -> None:
        parcel.tries += 1
        if parcel.tries < TRIES_MAX and now < parcel.until_us:
            self._timers.set(parcel, now + backoff(self._rng, self._config.connect_us, 0))

    def _rotate(self, parcel: InstallParcel) -> tuple[Stop, ...]:
        """The first recipient changes with each attempt. This node keeps its random position, even the first one: a
        node that passes instructions on sees their recipients, and a position that only subscribers have would
        reveal them."""
        turn = parcel.tries % len(parcel.stops)
        return (*parcel.stops[turn:], *parcel.stops[:turn])

    def _install_here(self, parcel: InstallParcel, stops: Sequence[Stop], now: int) -> bool:
        """Handle instructions for this node itself, and for others after it. Returns False if its routing table is
        full: others can fill it."""
        try:
            self._install_own(self._wrap(parcel, stops, 0), now)
        except RemoteError:
            return False
        return True

    def _wrap(self, parcel: InstallParcel, stops: Sequence[Stop], number: int) -> Install:
        tree, context = parcel.tree, bundle_context(parcel.until_us, parcel.groups)
        recipients = [tree.recipient(stop) for stop in stops]
        instructions = [tree.instruction(stop) for stop in stops]
        bundle = wrap_group(recipients, instructions, self._config.fan, self._entropy, context=context)
        return self._prover.prove(Install(number, parcel.until_us, parcel.groups, pad(bundle, INSTALL_BLOCK)))


TRIES_MAX: Final = 8
"""Attempts after which a parcel is given up: probes then show which nodes it did not reach."""
