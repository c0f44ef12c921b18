"""Routing-state transfer: a replica that has just joined or restarted asks for the claims that it lacks (P4, Algorithm
4).

The replica asks every replica that it is linked with. Those of neighbouring nodes send their claims, and it believes
what enough replicas of one node say (`routing.router`). Its siblings send the claims of the edge node's clients, so
that it knows which clients to wait for. Cloning a sibling is no option: the clone would hold its shares.

The transfer is complete when all have answered and every known client has connected; or when `copy_us` is over and, of
each node, at least as many have answered as are honest, so that silence cannot delay it. Replicas that have not
answered are asked again. A whole neighbouring node may be down: after `linger_us` the replica serves the others.

Among the replicas that answered, f Byzantine ones may have sent nothing, and fewer honest ones than make a claim
believed may be left. Of its siblings too few are honest to make a client's claim believed at all. So a claim reported
by a single replica is waited for, until the client connects or other replicas report it, for up to `PATIENCE_FACTOR`
times `copy_us`, because clients and brokers reconnect after growing pauses. An invented claim delays the transfer by
that much, and no more. Without this wait, two restarted replicas could both report "no subscribers", and the
publication would be lost.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

from veilcast.brokers.keys.scheme import max_faulty
from veilcast.brokers.operations.detach import RemainingWork
from veilcast.core.timers import earliest


class RoutingStateTransfer:
    """The transfer to one replica. `nodes` are those that it asks; its siblings are under the id of its own node,
    `own`."""

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
        """This replica has sent all it knows."""
        if any(key in keys for keys in self._nodes.values()):
            self._answered.add(key)
            self._count()

    def handle(self, now: int, work: RemainingWork) -> list[bytes]:
        """The replicas to ask now."""
        is_late = now >= self._since_us + self._copy_us
        is_patient = now < self._since_us + PATIENCE_FACTOR * self._copy_us
        has_told = not self._unanswered or (
            is_late and self._enough and not (work.has_unconfirmed_claims and is_patient)
        )
        self.is_complete = (
            self.is_complete or (has_told and not (work.has_missing_claims and is_patient)) or now >= self._until_us
        )
        if self.is_complete or now < self._ask_us:
            return []
        self._ask_us = now + self._copy_us
        return self._unanswered

    def next_us(self) -> int | None:
        return None if self.is_complete else earliest(self._ask_us, self._until_us)

    def _count(self) -> None:
        self._unanswered = [key for keys in self._nodes.values() for key in sorted(keys - self._answered)]
        self._enough = all(len(keys & self._answered) >= self._honest[node] for node, keys in self._nodes.items())


PATIENCE_FACTOR: Final = 10
"""With the default settings of brokers and clients, 20 s; a client's longest pause is 16 s."""
