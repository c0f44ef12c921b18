"""Branches: for every topic, the neighbours that asked this node for it, and the neighbours that this node asked.

The table (token, neighbour) of P1. Branches merge here: however many neighbours ask, this node asks once on each way
back. `overlay` computes which neighbours to ask; this module only stores the result.
"""

from __future__ import annotations

from veilcast.core.bounded import PeerQuota
from veilcast.machine import Address


class Branches:
    """Bounded in tokens: a request over the bound is refused."""

    def __init__(self, *, tokens_max: int) -> None:
        self._tokens_max = tokens_max
        self._outward: dict[bytes, dict[Address, None]] = {}
        self._inward: dict[bytes, dict[Address, None]] = {}
        self._requests: PeerQuota[Address, bytes] = PeerQuota()

    def outward(self, token: bytes) -> list[Address]:
        """The neighbours that get the topic's notifications from this node, N-(v) in P0."""
        return list(self._outward.get(token, ()))

    def inward(self, token: bytes) -> list[Address]:
        """The neighbours that this node asked for the topic, N+(v) in P0."""
        return list(self._inward.get(token, ()))

    def tokens(self) -> list[bytes]:
        return list(dict.fromkeys((*self._outward, *self._inward)))

    def add_outward(self, token: bytes, neighbour: Address) -> bool:
        """A neighbour asks for the topic; False if the table is full."""
        if token not in self._outward and len(self._outward) >= self._tokens_max:
            return False
        self._outward.setdefault(token, {})[neighbour] = None
        self._requests.charge(neighbour, token)
        return True

    def remove_outward(self, token: bytes, neighbour: Address) -> None:
        """A neighbour no longer asks for the topic."""
        _discard(self._outward, token, neighbour)
        self._requests.release(neighbour, token)

    def find_excess(self, neighbour: Address, share: int) -> bytes | None:
        """The topic that this neighbour asked for longest ago, if it is over its share."""
        return self._requests.oldest_over(neighbour, share)

    def add_inward(self, token: bytes, neighbour: Address) -> None:
        self._inward.setdefault(token, {})[neighbour] = None

    def remove_inward(self, token: bytes, neighbour: Address) -> None:
        _discard(self._inward, token, neighbour)

    def size(self) -> int:
        return sum(len(held) for table in (self._outward, self._inward) for held in table.values())


def _discard(table: dict[bytes, dict[Address, None]], token: bytes, neighbour: Address) -> None:
    held = table.get(token)
    if held is not None and neighbour in held:
        del held[neighbour]
        if not held:
            del table[token]
