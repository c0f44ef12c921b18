"""Leaving: when a replica that the operator has detached may go (P4, Algorithm 3, corrected).

Pure. Who sends to the replica stops at its own time, and says so behind the last that it sends by the old scheme; until
then the replica works as before. To the letter, Algorithm 3 waits while it lacks an acknowledgement *and* has something
in its queue: it goes at the first moment its queue is empty, and all that comes later is lost. It must wait while it
lacks an acknowledgement *or* has work.

To wait for the acknowledgement of everybody is no better: one Byzantine neighbour that says nothing, or never takes
what is queued for it, keeps the replica for ever. With a majority of every neighbouring node an honest one has said
it; the honest rest is late by no more than the bound on delay, so the replica waits that long and goes. When
`linger_us` is over it goes if a majority of any neighbouring node has said it: what was on its way through it takes the
other replicas, or the publisher's next attempt. If none has, those who should come in its place have not come, and
nobody sends by the new scheme: then it stays, for without it the node would be gone.

The rules of the letter are here for the experiment that shows what they lose.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Literal, TypeAlias

import msgspec

from veilcast.brokers.keys.scheme import majority
from veilcast.core.timers import earliest

DetachRule: TypeAlias = Literal["corrected", "printed", "every"]
"""`printed` is Algorithm 3 to the letter, `every` the same with `or`; neither is for people."""


class RemainingWork(msgspec.Struct, frozen=True):
    """What a replica still has to do: peers that have not heard all that is queued for them, and keys in hand; and
    whether claims are lacking that siblings know of clients, or too few of a neighbour have told (`brokers.copying`).
    Until `quiet_us` it says nothing on keys, since it may have forgotten what it said."""

    lagging: Collection[bytes] = frozenset()
    keys_held: int = 0
    has_missing_claims: bool = False
    has_unconfirmed_claims: bool = False
    quiet_us: int = 0


class Detachment:
    """Of one replica, told when neighbours (by node, and its siblings among them) have sent the last of their items."""

    def __init__(
        self, nodes: Mapping[bytes, Collection[bytes]], *, settle_us: int, until_us: int, rule: DetachRule = "corrected"
    ) -> None:
        self._nodes = {node: frozenset(keys) for node, keys in nodes.items()}
        self._settle_us, self._until_us, self._rule = settle_us, until_us, rule
        self._stood: set[bytes] = set()
        self._enough_us: int | None = None
        self.is_over = False

    def record_moved(self, key: bytes) -> None:
        """This one sends nothing more by the old scheme."""
        if any(key in keys for keys in self._nodes.values()):
            self._stood.add(key)

    def handle(self, now: int, work: RemainingWork) -> bool:
        """Whether it is time to go."""
        every = all(keys <= self._stood for keys in self._nodes.values())
        idle = not work.keys_held and not work.lagging
        if self._rule == "printed":
            self.is_over = self.is_over or every or not work.keys_held
        elif self._rule == "every":
            self.is_over = self.is_over or (every and idle)
        else:
            late = now >= self._until_us and any(map(self._has_moved, self._nodes.values()))
            self.is_over = self.is_over or (every and idle) or late or self._is_enough(now, work)
        return self.is_over

    def next_us(self) -> int | None:
        if self.is_over or self._rule != "corrected":
            return None
        moved = any(map(self._has_moved, self._nodes.values()))
        settled_us = None if self._enough_us is None else self._enough_us + self._settle_us
        return earliest(self._until_us if moved else None, settled_us)

    def _has_moved(self, keys: frozenset[bytes]) -> bool:
        """Whether a majority of these has said that it sends nothing more by the old scheme."""
        return len(keys & self._stood) >= majority(len(keys))

    def _is_enough(self, now: int, work: RemainingWork) -> bool:
        """Whether for `settle_us` now a majority of each node has said it, and has all that was for it."""
        enough = not work.keys_held and all(
            self._has_moved(keys) and len(keys - set(work.lagging)) >= majority(len(keys))
            for keys in self._nodes.values()
        )
        if not enough:
            self._enough_us = None
        elif self._enough_us is None:
            self._enough_us = now
        return self._enough_us is not None and now >= self._enough_us + self._settle_us
