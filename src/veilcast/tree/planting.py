"""Planting: how a subscriber tells the nodes of its tree their instructions, without showing itself.

Nodes are told in groups. A group's instructions are wrapped in layers and go, through the anonymous network and on a
stream of their own, to the first of the group, which hands the rest on. All are padded to one size and leave one by one
at random moments. When the first does not answer, another of the group is the first next time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Final

from veilcast.authority.subjects import Groups
from veilcast.errors import RemoteError
from veilcast.machine import Address, Entropy
from veilcast.parts.alarms import Alarms
from veilcast.parts.calling import backoff
from veilcast.parts.ways import way
from veilcast.tree.bundles import wrap_group
from veilcast.tree.config import TreeConfig
from veilcast.tree.grown import Grown, Stop
from veilcast.tree.proofs import Prover, context_of
from veilcast.tree.purposes import INSTALL as FOR_INSTALL
from veilcast.tree.purposes import fresh
from veilcast.tree.streams import Answer, Streams
from veilcast.wire.geometry import INSTALL
from veilcast.wire.padding import pad
from veilcast.wire.tree import Code, Install, Refused


@dataclass(slots=True, eq=False)
class Parcel:
    """Instructions for some stops of one tree, until they are with the first of them."""

    tree: Grown
    stops: tuple[Stop, ...]
    groups: Groups
    until_us: int
    tries: int = 0


class Planting:
    """Bounded by those who plant: a tree of n nodes is n / `group` parcels, and each is tried a few times."""

    def __init__(
        self,
        config: TreeConfig,
        streams: Streams,
        prover: Prover,
        home: bytes,
        where: Callable[[bytes], Address | None],
        keep: Callable[[Install, int], None],
        rng: Random,
        entropy: Entropy,
    ) -> None:
        """`keep` takes instructions for this node itself."""
        self._config, self._streams, self._prover, self._home = config, streams, prover, home
        self._where, self._keep, self._rng, self._entropy = where, keep, rng, entropy
        self._alarms: Alarms[Parcel] = Alarms()
        self._under_way: dict[Parcel, None] = {}

    def __len__(self) -> int:
        return len(self._alarms) + len(self._under_way)

    def waits(self, tree: Grown) -> bool:
        """Whether anything of this tree has still to leave, or to be answered."""
        return any(parcel.tree is tree for parcel in (*self._alarms, *self._under_way))

    def plant(self, tree: Grown, groups: Groups, until_us: int, now: int) -> None:
        """All of a new tree."""
        parcels = [*tree.groups(self._config.group), *((stop,) for stop in tree.chain)]
        self._schedule(tree, parcels, groups, until_us, self._config.spread_us, now)

    def tell(
        self, tree: Grown, stops: Sequence[Stop], groups: Groups, until_us: int, now: int, within_us: int = 0
    ) -> None:
        """Some stops of a tree that stands, within this time. Guards are told one by one, as before."""
        places = [stop for stop in dict.fromkeys(stops) if stop >= 0]
        self._rng.shuffle(places)
        size = self._config.group
        parcels = [tuple(places[start : start + size]) for start in range(0, len(places), size)]
        parcels += [(stop,) for stop in dict.fromkeys(stops) if stop < 0]
        self._schedule(tree, parcels, groups, until_us, within_us, now)

    def forget(self, tree: Grown) -> None:
        for parcel in [each for each in self._alarms if each.tree is tree]:
            self._alarms.drop(parcel)

    def next_us(self) -> int | None:
        return self._alarms.next_us()

    def handle(self, now: int) -> None:
        for parcel in self._alarms.due(now):
            self._send(parcel, now)

    def _schedule(
        self,
        tree: Grown,
        parcels: Sequence[tuple[Stop, ...]],
        groups: Groups,
        until_us: int,
        within_us: int,
        now: int,
    ) -> None:
        for stops in parcels:
            parcel = Parcel(tree, stops, tree.tags(stops[0], groups), until_us + tree.count(stops))
            self._alarms.set(parcel, now + self._rng.randrange(within_us + 1))
            for own in [stop for stop in stops if tree.node(stop) == self._home]:
                # We need nobody to tell us; but others do, too, or they would see who is left out.
                self._take(parcel, [own], now)

    def _send(self, parcel: Parcel, now: int) -> None:
        stops = self._in_order(parcel)
        if not stops:
            return
        first = parcel.tree.node(stops[0])
        if first == self._home:
            if not self._take(parcel, stops, now):
                self._later(parcel, now)
            return
        address = self._where(first)
        peer = None if address is None else way(address, fresh(FOR_INSTALL, self._entropy))

        def build(number: int) -> Install:
            return self._wrapped(parcel, stops, number)

        def then(answer: Answer | None, now: int) -> None:
            self._under_way.pop(parcel, None)
            if answer is None or (isinstance(answer, Refused) and answer.code != Code.MALFORMED):
                self._later(parcel, now)

        until_us = now + self._streams.patience_us
        self._under_way[parcel] = None
        if peer is None or not self._streams.ask(peer, build, then, until_us=until_us, linger_us=0, now=now):
            self._under_way.pop(parcel, None)
            self._later(parcel, now)

    def _later(self, parcel: Parcel, now: int) -> None:
        parcel.tries += 1
        if parcel.tries < TRIES and now < parcel.until_us:
            self._alarms.set(parcel, now + backoff(self._rng, self._config.connect_us, 0))

    def _in_order(self, parcel: Parcel) -> tuple[Stop, ...]:
        """Whoever is tried first changes. This node itself is where chance has put it, also if it is the first: whoever
        hands instructions on sees to whom, and a place that only subscribers have would name them."""
        turn = parcel.tries % len(parcel.stops)
        return (*parcel.stops[turn:], *parcel.stops[:turn])

    def _take(self, parcel: Parcel, stops: Sequence[Stop], now: int) -> bool:
        """What is for this node itself, and for others after it. It may have no room: others can fill its table."""
        try:
            self._keep(self._wrapped(parcel, stops, 0), now)
        except RemoteError:
            return False
        return True

    def _wrapped(self, parcel: Parcel, stops: Sequence[Stop], number: int) -> Install:
        tree, context = parcel.tree, context_of(parcel.until_us, parcel.groups)
        recipients = [tree.recipient(stop) for stop in stops]
        told = [tree.instruction(stop) for stop in stops]
        bundle = wrap_group(recipients, told, self._config.fan, self._entropy, context=context)
        return self._prover.prove(Install(number, parcel.until_us, parcel.groups, pad(bundle, INSTALL)))


TRIES: Final = 8
"""After which a parcel is given up: probes tell whom it did not reach."""
