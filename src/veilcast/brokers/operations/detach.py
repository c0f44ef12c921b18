"""Detaching: when a replica that the operator has removed may leave (P4, Algorithm 3, corrected).

Each sender to the replica stops at its own time, and says so behind its last message by the old scheme. Until then the
replica works as before. As printed, Algorithm 3 waits while an acknowledgement is missing *and* the queue is not empty:
the replica leaves at the first moment its queue is empty, and everything that comes later is lost. It must wait while
an acknowledgement is missing *or* there is work.

Waiting for the acknowledgement of every neighbour is no better: one silent Byzantine neighbour, or one that never
accepts its queue, keeps the replica for ever. When a majority of every neighbouring node has acknowledged, an honest
replica of each has. The honest rest is late by at most the bound on delay, so the replica waits that long and leaves.
After `linger_us` it leaves if a majority of any neighbouring node has acknowledged: other replicas, or the publisher's
next attempt, carry what was in transit through it. If no node has a majority, the replica's successors have not joined,
and no one sends by the new scheme. Then it stays, because without it the node would be gone.

The printed rules are here for the experiment that shows what they lose.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Literal, TypeAlias

import msgspec

from veilcast.brokers.keys.scheme import majority
from veilcast.core.timers import earliest

DetachRule: TypeAlias = Literal["corrected", "printed", "every"]
"""`printed` is Algorithm 3 as printed, `every` the same with `or`; neither is for production."""


class RemainingWork(msgspec.Struct, frozen=True):
    """The remaining work of a replica: `lagging` peers with unacknowledged messages, and `keys_held` in transfer;
    whether claims are missing that siblings have of clients, and whether too few replicas of a neighbour have reported
    some claim (`state_transfer`). Until `quiet_us` the replica makes no statement on keys, because it may have
    forgotten earlier ones."""

    lagging: Collection[bytes] = frozenset()
    keys_held: int = 0
    has_missing_claims: bool = False
    has_unconfirmed_claims: bool = False
    quiet_us: int = 0


class Detachment:
    """The departure of one replica. It is told when neighbours (by node, with its siblings among them) have sent their
    last items."""

    def __init__(
        self, nodes: Mapping[bytes, Collection[bytes]], *, settle_us: int, until_us: int, rule: DetachRule = "corrected"
    ) -> None:
        self._nodes = {node: frozenset(keys) for node, keys in nodes.items()}
        self._settle_us, self._until_us, self._rule = settle_us, until_us, rule
        self._moved: set[bytes] = set()
        self._enough_us: int | None = None
        self.is_over = False

    def record_moved(self, key: bytes) -> None:
        """This replica sends nothing more by the old scheme."""
        if any(key in keys for keys in self._nodes.values()):
            self._moved.add(key)

    def handle(self, now: int, work: RemainingWork) -> bool:
        """True if it is time to leave."""
        all_moved = all(keys <= self._moved for keys in self._nodes.values())
        is_idle = not work.keys_held and not work.lagging
        if self._rule == "printed":
            self.is_over = self.is_over or all_moved or not work.keys_held
        elif self._rule == "every":
            self.is_over = self.is_over or (all_moved and is_idle)
        else:
            is_late = now >= self._until_us and any(map(self._has_moved, self._nodes.values()))
            self.is_over = self.is_over or (all_moved and is_idle) or is_late or self._is_enough(now, work)
        return self.is_over

    def next_us(self) -> int | None:
        if self.is_over or self._rule != "corrected":
            return None
        moved = any(map(self._has_moved, self._nodes.values()))
        settled_us = None if self._enough_us is None else self._enough_us + self._settle_us
        return earliest(self._until_us if moved else None, settled_us)

    def _has_moved(self, keys: frozenset[bytes]) -> bool:
        """True if a majority of these send nothing more by the old scheme."""
        return len(keys & self._moved) >= majority(len(keys))

    def _is_enough(self, now: int, work: RemainingWork) -> bool:
        """True if, for `settle_us`, a majority of each node has moved and has acknowledged all its messages."""
        enough = not work.keys_held and all(
            self._has_moved(keys) and len(keys - set(work.lagging)) >= majority(len(keys))
            for keys in self._nodes.values()
        )
        if not enough:
            self._enough_us = None
        elif self._enough_us is None:
            self._enough_us = now
        return self._enough_us is not None and now >= self._enough_us + self._settle_us
