"""Standing: which replicas were proven to lie, how, and how often; and which merely failed to bring what they should.

Pure counts. A proof is something that only a liar can have made: two dealings or two words under one signature, a
portion, piece or block that is not as committed, from the link of who brought it. Whoever is proven to lie is routed
around where others are left, and is named to the operator, who decides. What merely did not come proves nothing, for
links fail; it is counted for the statistics by which replicas are placed.

Marks are held against a replica's key. Its place has the version of its node's scheme, which changes whenever others
come or go: by places, any order on its node would clear a liar. Who is marked is told by where it stands now, under the
newest schemes; who has left, by the place where it was marked last. Without a roster, or under a scheme that it has
forgotten, a place is all that is known of a replica.

Bounded: replicas are those of the overlay, so strangers cannot fill this; when it is full, who has the fewest marks
goes.
"""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TypeAlias

from veilcast.brokers.sharing.scheme import Place, Roster
from veilcast.errors import LocalError, StaleError

_Who: TypeAlias = bytes | Place
"""A replica's key, or the place of one whose key is not known."""


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

    def __init__(self, most: int, roster: Roster | None = None) -> None:
        if most < 1:
            raise LocalError("there is room for at least one suspect")
        self._most, self._roster = most, roster
        self._marks: dict[_Who, Counter[Reason]] = {}
        self._last: dict[_Who, Place] = {}
        """Where each was marked last."""

    def __len__(self) -> int:
        return len(self._marks)

    def accuse(self, place: Place, reason: Reason, times: int = 1) -> None:
        who = self._who(place)
        if who not in self._marks and len(self._marks) >= self._most:
            least = min(self._marks, key=lambda other: (self._proofs(other), self._marks[other].total()))
            if self._proofs(least) and not reason.proof:
                return
            del self._marks[least], self._last[least]
        self._marks.setdefault(who, Counter())[reason] += times
        self._last[who] = place

    def liars(self) -> list[Place]:
        """Who was proven to lie."""
        return sorted({self._place(who) for who in self._marks if self._proofs(who)})

    def marks(self) -> dict[Place, dict[Reason, int]]:
        """Everything, for statistics."""
        marks: dict[Place, Counter[Reason]] = {}
        for who, reasons in self._marks.items():
            marks.setdefault(self._place(who), Counter()).update(reasons)
        return {place: dict(marks[place]) for place in sorted(marks)}

    def is_liar(self, place: Place) -> bool:
        return self._proofs(self._who(place)) > 0

    def around(self, places: Sequence[Place], least: int = 1) -> list[Place]:
        """Those of the places that were not proven to lie, in their order; all, if fewer than `least` are left."""
        left = [place for place in places if not self.is_liar(place)]
        return left if len(left) >= least else list(places)

    def accuse_all(self, places: Iterable[Place], reason: Reason) -> None:
        for place in places:
            self.accuse(place, reason)

    def _proofs(self, who: _Who) -> int:
        return sum(count for reason, count in self._marks.get(who, {}).items() if reason.proof)

    def _who(self, place: Place) -> _Who:
        try:
            return place if self._roster is None else self._roster.key(place)
        except StaleError:
            return place

    def _place(self, who: _Who) -> Place:
        now = self._roster.stands(who) if self._roster is not None and isinstance(who, bytes) else None
        return now or self._last[who]
