"""Tree repair: how a subscriber reacts to the outcomes of its probes.

A node that does not know its instruction receives it again: it may have restarted, or another node may not have passed
it on. The children of a node that is unreachable, or is found to drop messages, move up. While a node is only
suspected, nothing new depends on it: it becomes no guard and gets no children. Guards get more patience: replacing a
guard is a new draw, which an adversary would like to see often, so the guard is probed once more first.

Nodes that drop messages are found from many probes together (`suspects`). When a probe is lost, every node on its path
is probed separately, and the verdict waits until all these probes have ended. Absent nodes are known at that time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final

from veilcast.core.bounded import BoundedMap
from veilcast.tree.config import CHAIN_MAX, TreeConfig
from veilcast.tree.guards import Guards
from veilcast.tree.live_tree import Stop
from veilcast.tree.prober import ProbeOutcome, TreeProber
from veilcast.tree.subscriber import EpochTree, TreeSubscriber
from veilcast.tree.suspects import DropSuspects, SuspectedNode


class TreeRepair:
    """Bounded: `probes_kept` probes, and the nodes of the trees that failed last."""

    def __init__(self, config: TreeConfig, subscriber: TreeSubscriber, guards: Guards) -> None:
        self._config, self._subscriber, self._guards = config, subscriber, guards
        self._suspects = DropSuspects(remembered=config.probes_kept)
        self._failed: Counter[bytes] = Counter()
        """Consecutive probes of each node without an answer or without an entry."""
        self._proven_guards: BoundedMap[bytes, None] = BoundedMap(CHAIN_MAX)
        """Guards through which a message has arrived."""
        self._accused: BoundedMap[bytes, int] = BoundedMap(CHAIN_MAX)
        """Guards that seemed to drop messages, and the time of the suspicion."""
        self._moved_from: BoundedMap[bytes, bytes] = BoundedMap(config.probes_max)
        """Nodes that were moved to another parent, and their former parent."""
        self._verdict_us: int | None = None

    def handle_outcome(
        self,
        prober: TreeProber,
        epoch_tree: EpochTree,
        stop: Stop,
        path: Sequence[bytes],
        outcome: ProbeOutcome,
        now: int,
    ) -> None:
        if not epoch_tree.interest.numbers:
            return
        match outcome:
            case ProbeOutcome.RETURNED:
                self._suspects.record(path, returned=True)
                for node in path:
                    self._failed.pop(node, None)
                    self._subscriber.trust(node)
                    if node in self._guards:
                        self._proven_guards.renew(node, None)
                self._subscriber.mark_reached(epoch_tree, stop, now)
            case ProbeOutcome.MISSING:  # An avoided node may still be an origin.
                if self._failed[path[0]]:
                    self._subscriber.reinstall(epoch_tree, stop, now)
                self._count_failure(prober, epoch_tree, stop, path[0], MISSING_MAX, now)
            case _ if any(self._subscriber.avoids(node) for node in path):
                pass  # A node on its path is known to be absent or to drop messages; no other node is to blame.
            case ProbeOutcome.LOST:
                self._suspects.record(path, returned=False)
                self._subscriber.doubt(path[0])
                for each in reversed(epoch_tree.tree.path(stop)):
                    prober.probe_soon(epoch_tree, each, now)
                if self._verdict_us is None:
                    self._verdict_us = now + prober.round_us
            case ProbeOutcome.AWAY:
                most = self._config.patience if path[0] in self._guards else 1
                self._count_failure(prober, epoch_tree, stop, path[0], most, now)

    def next_us(self) -> int | None:
        return self._verdict_us

    def handle(self, now: int) -> None:
        if self._verdict_us is not None and self._verdict_us <= now:
            self._verdict_us = None
            for suspect in self._suspects.find_suspects():
                self._blame(suspect, now)

    def _count_failure(
        self, prober: TreeProber, epoch_tree: EpochTree, stop: Stop, node: bytes, most: int, now: int
    ) -> None:
        self._failed[node] += 1
        if self._failed[node] >= most:
            del self._failed[node]
            self._avoid(node, now)
        else:
            prober.probe_soon(epoch_tree, stop, now + max(self._config.connect_us, prober.round_us // RETRY_SHARE))

    def _blame(self, suspect: SuspectedNode, now: int) -> None:
        """A guard through which messages have arrived gets a second chance, from the beginning: perhaps no node could
        reach the subscriber.

        Any other node first gets another parent, once: if it lost messages below one parent only, that parent may have
        dropped them. The observations are kept; later losses, or their absence, show which of the two it was. Meanwhile
        nothing depends on the node.
        """
        node = suspect.node
        parents = self._suspects.parents_after_loss(node)
        if node not in self._guards and len(parents) == 1:
            if parents == {self._moved_from.get(node)}:
                return
            if node not in self._moved_from and self._subscriber.move_to_other_parent(node, now):
                self._moved_from.renew(node, parents.pop())
                return
        if node in self._proven_guards and now > self._accused.get(node, -SECOND_CHANCE_US) + SECOND_CHANCE_US:
            self._accused.renew(node, now)
            self._suspects.forget(node)
        else:
            self._avoid(node, now, suspect.weight)

    def _avoid(self, node: bytes, now: int, weight: float = 0.0) -> None:
        self._moved_from.pop(node, None)
        self._proven_guards.pop(node, None)
        self._suspects.forget(node)
        self._subscriber.avoid(node, now + self._config.avoid_us, now, weight)


RETRY_SHARE: Final = 8
"""A failed node is probed again after one in this many parts of the time that probes may take: it may receive its
instruction meanwhile.
"""
MISSING_MAX: Final = 4
"""Consecutive probes without an entry before a node counts as absent."""
SECOND_CHANCE_US: Final = 600_000_000
"""Time for which a guard's second chance is remembered."""
