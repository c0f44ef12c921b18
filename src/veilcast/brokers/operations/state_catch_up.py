"""Routing-state transfer: a replica that has just joined or restarted asks for the claims that it lacks (P4, Algorithm
4).

The replica asks every replica that it is linked with. Those of neighbouring nodes send their claims, and it believes
what enough replicas of one node say (`routing.router`). Its siblings send the claims of the edge node's clients, so
that it knows which clients to wait for. Cloning a sibling is no option: the clone would hold its shares. The transfer
is complete when all have answered and every known client has connected. Replicas that have not answered are asked
again every `copy_us`.

1. Property: silent replicas, a minority of each node, delay the transfer by at most `PATIENCE_FACTOR` times `copy_us`.
   Reason: after `copy_us` the answers of n - f replicas of each node suffice (n - 1 - f siblings): as many as are
   honest. A claim that is not confirmed, or a client that is not connected, is waited for until `PATIENCE_FACTOR` times
   `copy_us`, and no longer. An invented claim delays the transfer by that much.

2. Property: a transfer that completes by patience or before lacks no claim that honest replicas have.
   Assumption: clients and brokers that are up reconnect within `PATIENCE_FACTOR` times `copy_us`.
   Reason: among the n - f replicas that have answered, f may be Byzantine and silent about a claim, so fewer honest
   ones may have reported it than make it believed; of its siblings too few are honest to make a client's claim believed
   at all. So a claim reported by a single replica is waited for until the client connects or others report it. Without
   this wait, two restarted replicas could both report "no subscribers", and the publication would be lost.
   `PATIENCE_FACTOR` = 10: clients and brokers reconnect after pauses that grow to 16 times `connect_us`, by default
   16 s. 10 times `copy_us` is 20 s by default, and leaves 4 s for connecting; 8 would leave nothing. Nothing compares
   the two settings: an operator that lowers `copy_us` must lower `connect_us` of brokers and clients, too.

3. Property: a whole neighbouring node that is down stops the transfer for `linger_us` at most.
   Reason: then the replica serves the others. It may lack claims of that node, which sends them when it is back.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

from veilcast.brokers.keys.scheme import max_faulty
from veilcast.brokers.operations.detachment import RemainingWork
from veilcast.core.timers import earliest


class RoutingStateCatchUp:
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
"""A multiple of `copy_us`; property 2 derives it."""
