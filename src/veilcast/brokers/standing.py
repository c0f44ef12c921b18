"""Standing: which replicas were proven to lie, how, and how often; and which merely failed to bring what they should.

Pure counts. A proof is something that only a liar can have made: two dealings or two words under one signature, a
portion, piece or block that is not as committed, from the link of who brought it. Whoever is proven to lie is routed
around where others are left, and is named to the operator, who decides. What merely did not come proves nothing, for
links fail; it is counted for the statistics by which replicas are placed.

Bounded: places are those of the overlay, so strangers cannot fill this; when it is full, who has the fewest marks goes.
"""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Iterable, Sequence

from veilcast.brokers.sharing.scheme import Place
from veilcast.errors import LocalError


class Reason(enum.StrEnum):
    TWO_DEALINGS = "dealt one share in two ways"
    TWO_WORDS = "said two things of one hop"
    PORTION = "sent a portion that does not hold"
    PIECE = "sent a piece that does not hold"
    WORD = "sent a word that does not hold"
    BLOCK = "sent a block that was spoilt"
    LATE = "did not bring what it had to"

    @property
    def proof(self) -> bool:
        """Whether nobody else can be to blame."""
        return self is not Reason.LATE


class Suspicions:
    """Of one broker or client, on all replicas it deals with."""

    def __init__(self, most: int) -> None:
        if most < 1:
            raise LocalError("there is room for at least one suspect")
        self._most = most
        self._marks: dict[Place, Counter[Reason]] = {}

    def __len__(self) -> int:
        return len(self._marks)

    def accuse(self, place: Place, reason: Reason, times: int = 1) -> None:
        if place not in self._marks and len(self._marks) >= self._most:
            least = min(self._marks, key=lambda other: (self._proofs(other), self._marks[other].total()))
            if self._proofs(least) and not reason.proof:
                return
            del self._marks[least]
        self._marks.setdefault(place, Counter())[reason] += times

    def liars(self) -> list[Place]:
        """Who was proven to lie."""
        return sorted(place for place in self._marks if self._proofs(place))

    def marks(self) -> dict[Place, dict[Reason, int]]:
        """Everything, for statistics."""
        return {place: dict(self._marks[place]) for place in sorted(self._marks)}

    def is_liar(self, place: Place) -> bool:
        return self._proofs(place) > 0

    def around(self, places: Sequence[Place], least: int = 1) -> list[Place]:
        """Those of the places that were not proven to lie, in their order; all, if fewer than `least` are left."""
        left = [place for place in places if not self.is_liar(place)]
        return left if len(left) >= least else list(places)

    def accuse_all(self, places: Iterable[Place], reason: Reason) -> None:
        for place in places:
            self.accuse(place, reason)

    def _proofs(self, place: Place) -> int:
        return sum(count for reason, count in self._marks.get(place, {}).items() if reason.proof)
