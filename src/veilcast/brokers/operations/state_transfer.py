"""Copying: a replica that has just come, or come back, asks for the routing state that it lacks (P4, Algorithm 4).

Pure. It asks every replica it is linked with: those of neighbouring nodes tell it their claims, of which it believes
what enough of one node say (`brokers.routing`); its siblings tell it which clients their edge node has, so that it
knows for whom to wait. Clones of a sibling are out of the question, for they would hold its shares.

It is complete when all have answered and every client known has come; or when `copy_us` is over and of each node as
many have answered as there are honest ones at least, so that nobody can keep it waiting by silence. Who has not
answered is asked again. A whole neighbouring node may be down: after `linger_us` the replica serves the others.

Among those who have answered there may be f liars that told nothing, and fewer honest ones than make a claim believed;
and of its siblings too few are honest to make one of theirs believed at all. So what a single one has told is waited
for, be it a client or another's voice, and `PATIENCE_FACTOR` times as long, for clients and brokers call again after
pauses
that grow: by what it makes up a liar delays that much, and no more. Before, the replica would say of what they want
that nobody does: a second one that says so, just killed and come back, and it would be lost.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Final

from veilcast.brokers.keys.scheme import max_faulty
from veilcast.brokers.operations.detach import RemainingWork
from veilcast.core.timers import earliest


class RoutingStateTransfer:
    """Of one replica; `nodes` are those it asks, its siblings under the id of its own node, which is `own`."""

    def __init__(
        self, nodes: Mapping[bytes, Collection[bytes]], own: bytes, *, copy_us: int, linger_us: int, now: int
    ) -> None:
        self._nodes = {node: frozenset(keys) for node, keys in nodes.items()}
        self._honest = {
            node: len(keys) - max_faulty(len(keys) + (1 if node == own else 0)) for node, keys in self._nodes.items()
        }
        self._copy_us, self._since_us, self._until_us = copy_us, now, now + linger_us
        self._ask_us = now
        self._answered: set[bytes] = set()
        self._count()
        self.is_complete = False

    def record_answer(self, key: bytes) -> None:
        """This one has told all it knows."""
        if any(key in keys for keys in self._nodes.values()):
            self._answered.add(key)
            self._count()

    def handle(self, now: int, work: RemainingWork) -> list[bytes]:
        """Whom to ask now."""
        late = now >= self._since_us + self._copy_us
        patient = now < self._since_us + PATIENCE_FACTOR * self._copy_us
        told = not self._lacking or (late and self._enough and not (work.has_unconfirmed_claims and patient))
        self.is_complete = (
            self.is_complete or (told and not (work.has_missing_claims and patient)) or now >= self._until_us
        )
        if self.is_complete or now < self._ask_us:
            return []
        self._ask_us = now + self._copy_us
        return self._lacking

    def next_us(self) -> int | None:
        return None if self.is_complete else earliest(self._ask_us, self._until_us)

    def _count(self) -> None:
        self._lacking = [key for keys in self._nodes.values() for key in sorted(keys - self._answered)]
        self._enough = all(len(keys & self._answered) >= self._honest[node] for node, keys in self._nodes.items())


class AwaitedClaims:
    """Claims that siblings have of clients of our node, and no client has brought us yet. Bounded: `most` of one
    sibling."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._told: dict[bytes, dict[bytes, None]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._told.values()))

    def add(self, sibling: bytes, claim: bytes) -> None:
        mine = self._told.setdefault(sibling, {})
        if len(mine) < self._most:
            mine[claim] = None

    def has_missing(self, has: Callable[[bytes], bool]) -> bool:
        """Whether there is one that we do not have. One that we had is not asked for again."""
        for mine in self._told.values():
            while mine and has(first := next(iter(mine))):
                del mine[first]
        return any(self._told.values())

    def clear(self) -> None:
        self._told.clear()


PATIENCE_FACTOR: Final = 10
"""With what brokers and clients have unless told otherwise, 20 s; a client's longest pause is 16 s."""
