"""Tending: what a subscriber does about what its probes tell.

Who does not know its instruction is told again: it may have started anew, or whoever should have handed it on did not.
What stood below somebody who cannot be reached, or is found to lose things, is hung higher. While it is only doubted
whether it loses things, nothing new is made to depend on it: it is no guard, and nobody hangs by it. A guard is more
than that: to put another in its place is a new draw, which an attacker would like to see often; so it is first asked
once more.

Who loses things is found from many probes together (`suspects`): when one is lost, everyone on its way is probed by
itself, and it is judged when all of these have ended. By then it is known who is only away.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final

from veilcast.core.bounded import remember
from veilcast.tree.config import CHAIN_MAX, TreeConfig
from veilcast.tree.guards import Guards
from veilcast.tree.live_tree import Stop
from veilcast.tree.prober import ProbeOutcome, TreeProber
from veilcast.tree.subscriber import EpochTree, TreeSubscriber
from veilcast.tree.suspects import DropSuspects


class TreeRepair:
    """Bounded: `probes_kept` probes, and of the nodes on trees those that failed last."""

    def __init__(self, config: TreeConfig, subscribing: TreeSubscriber, guards: Guards) -> None:
        self._config, self._subscribing, self._guards = config, subscribing, guards
        self._suspects = DropSuspects(remembered=config.probes_kept)
        self._failed: Counter[bytes] = Counter()
        """How often in a row each node gave no answer, or had no entry."""
        self._came: dict[bytes, None] = {}
        """The guards by which something has come."""
        self._accused: dict[bytes, int] = {}
        """Guards that seemed to lose things, and when."""
        self._lifted: dict[bytes, bytes] = {}
        """Who was handed to another parent, and from whom."""
        self._verdict_us: int | None = None

    def handle_outcome(
        self, probing: TreeProber, term: EpochTree, stop: Stop, way: Sequence[bytes], how: ProbeOutcome, now: int
    ) -> None:
        if not term.interest.numbers:
            return
        match how:
            case ProbeOutcome.RETURNED:
                self._suspects.record(way, returned=True)
                for node in way:
                    self._failed.pop(node, None)
                    self._subscribing.trust(node)
                    if node in self._guards:
                        remember(self._came, node, None, CHAIN_MAX)
                self._subscribing.mark_reached(term, stop, now)
            case ProbeOutcome.MISSING:  # Whoever is avoided, too, may be an origin.
                if self._failed[way[0]]:
                    self._subscribing.reinstall(term, stop, now)
                self._fail(probing, term, stop, way[0], MISSING_MAX, now)
            case _ if any(self._subscribing.avoids(node) for node in way):
                pass  # It went by somebody who is known to be away, or to lose things; nobody else is to blame.
            case ProbeOutcome.LOST:
                self._suspects.record(way, returned=False)
                self._subscribing.doubt(way[0])
                for each in reversed(term.tree.path(stop)):
                    probing.probe_soon(term, each, now)
                if self._verdict_us is None:
                    self._verdict_us = now + probing.round_us
            case ProbeOutcome.AWAY:
                most = self._config.patience if way[0] in self._guards else 1
                self._fail(probing, term, stop, way[0], most, now)

    def next_us(self) -> int | None:
        return self._verdict_us

    def handle(self, now: int) -> None:
        if self._verdict_us is not None and self._verdict_us <= now:
            self._verdict_us = None
            for suspect in self._suspects.find_suspects():
                self._blame(suspect.node, now)

    def _fail(self, probing: TreeProber, term: EpochTree, stop: Stop, node: bytes, most: int, now: int) -> None:
        self._failed[node] += 1
        if self._failed[node] >= most:
            del self._failed[node]
            self._leave(node, now)
        else:
            probing.probe_soon(term, stop, now + max(self._config.connect_us, probing.round_us // RETRY_SHARE))

    def _blame(self, node: bytes, now: int) -> None:
        """A guard by which things have come is given a second chance, from the beginning: it might have been that
        nobody could reach us.

        Anybody else is first handed to another parent, once: if it has lost things below one only, that one may have
        dropped them. What was seen is kept, and says who it was when more is lost, or nothing is. Meanwhile nothing
        depends on it.
        """
        parents = self._suspects.parents_after_loss(node)
        if node not in self._guards and len(parents) == 1:
            if parents == {self._lifted.get(node)}:
                return
            if node not in self._lifted and self._subscribing.move_to_other_parent(node, now):
                remember(self._lifted, node, parents.pop(), self._config.probes_max)
                return
        if node in self._came and now > self._accused.get(node, -SECOND_CHANCE_US) + SECOND_CHANCE_US:
            remember(self._accused, node, now, CHAIN_MAX)
            self._suspects.forget(node)
        else:
            self._leave(node, now)

    def _leave(self, node: bytes, now: int) -> None:
        self._lifted.pop(node, None)
        self._came.pop(node, None)
        self._suspects.forget(node)
        self._subscribing.avoid(node, now + self._config.avoid_us, now)


RETRY_SHARE: Final = 8
"""A node that failed is probed again after such a part of the time that probes may take: it may be told meanwhile."""
MISSING_MAX: Final = 4
"""So often a node may lack what it was told before it is held to be away."""
SECOND_CHANCE_US: Final = 600_000_000
"""For so long it is remembered that a guard has had its second chance."""
