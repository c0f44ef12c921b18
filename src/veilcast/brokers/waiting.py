"""Waiting: subscriptions whose proof fits no advertisement that is known, until one comes or they end.

Pure. Anybody can make one of these, for nothing tells a reader's proof from noise before its topic is advertised. So
there are only so many, and when there is no room the hop that has most of them loses its oldest.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable
from typing import NamedTuple

from veilcast.machine import Address
from veilcast.wire.brokers import Claim


class Hope(NamedTuple):
    """`subject` is what its words are about."""

    claim: Claim
    hop: Address
    subject: Hashable


class Waiting:
    """Bounded: `most`."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._hopes: dict[bytes, Hope] = {}
        self._about: dict[Hashable, dict[bytes, None]] = {}

    def __len__(self) -> int:
        return len(self._hopes)

    def __contains__(self, id_: bytes) -> bool:
        return id_ in self._hopes

    def get(self, id_: bytes) -> Hope | None:
        return self._hopes.get(id_)

    def about(self, subject: Hashable) -> list[tuple[bytes, Hope]]:
        """Those that an advertisement of this subject may fit."""
        return [(id_, self._hopes[id_]) for id_ in self._about.get(subject, ())]

    def full(self, hop: Address) -> bytes | None:
        """Which one must go, for one more from this hop; None if there is room."""
        if len(self._hopes) < self._most:
            return None
        most = Counter([*(hope.hop for hope in self._hopes.values()), hop]).most_common(1)[0][0]
        return next(id_ for id_, hope in self._hopes.items() if hope.hop == most)

    def add(self, id_: bytes, hope: Hope) -> None:
        self._hopes[id_] = hope
        self._about.setdefault(hope.subject, {})[id_] = None

    def pop(self, id_: bytes) -> Hope | None:
        hope = self._hopes.pop(id_, None)
        if hope is not None:
            del self._about[hope.subject][id_]
            if not self._about[hope.subject]:
                del self._about[hope.subject]
        return hope
