"""Detaching: when a replica that the operator has removed may leave (P4, Algorithm 3, corrected).

Each sender to the replica stops at its own time, and says so behind its last message by the old scheme. Until then the
replica works as before.

1. Property: the replica leaves with nothing that only it could bring.
   Assumption: the bound on delay (`settle_us` is longer), and fewer than half of every neighbouring node are Byzantine.
   Reason: it leaves when all neighbours have stopped and nothing is left to do, or when a majority of every
   neighbouring node has stopped and acknowledged all for `settle_us`, and no key is held. A majority contains an honest
   replica. The other honest ones stop within `settle_us` of it, the longest time between the first honest switch and
   the last, their last messages included. If a key comes in this time, the time starts again. With less than a
   majority, Byzantine replicas alone could start it.

2. Property: no minority of any neighbouring node keeps the replica for ever.
   Reason: one silent Byzantine neighbour, or one that never accepts its queue, could do so if all had to acknowledge.
   So a majority is enough. A Byzantine publisher can hold keys up, and a majority may be slow. So `prepare_us` and
   `linger_us` after the order (`until_us`) the replica leaves with whatever is left to do, if a majority of any
   neighbouring node has stopped. Other replicas, or the publisher's next attempt, carry what was in transit through it.

3. Property: no replica leaves before its successors have joined.
   Reason: if no neighbouring node has a majority that has stopped, no one sends by the new scheme. Then the replica
   stays, without a limit: without it the node would be gone.

As printed, Algorithm 3 waits while an acknowledgement is missing *and* the queue is not empty: the replica leaves at
the first moment its queue is empty, and everything that comes later is lost. It must wait while an acknowledgement is
missing *or* there is work. The printed rules are here for the experiment that shows what they lose.
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
    some claim (`state_catch_up`). Until `quiet_us` the replica makes no statement on keys, because it may have
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
