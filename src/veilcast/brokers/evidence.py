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

from veilcast.brokers.keys.scheme import ReplicaId, ReplicaKeys
from veilcast.errors import LocalError, StaleError

_Replica: TypeAlias = bytes | ReplicaId
"""A replica's key, or the place of one whose key is not known."""


class FaultReason(enum.StrEnum):
    TWO_DEALINGS = "dealt one share in two ways"
    TWO_STATEMENTS = "said two things of one hop"
    BAD_DEALT_SHARE = "sent a portion that does not hold"
    BAD_SPLIT_SHARE = "sent a piece that does not hold"
    BAD_STATEMENT = "sent a word that does not hold"
    BAD_BLOCK = "sent a block that was spoilt"
    LATE = "did not bring what it had to"

    @property
    def is_proof(self) -> bool:
        """Whether nobody else can be to blame."""
        return self is not FaultReason.LATE


class FaultEvidence:
    """Of one broker or client, on all replicas it deals with."""

    def __init__(self, most: int, roster: ReplicaKeys | None = None) -> None:
        if most < 1:
            raise LocalError("there is room for at least one suspect")
        self._most, self._roster = most, roster
        self._marks: dict[_Replica, Counter[FaultReason]] = {}
        self._last: dict[_Replica, ReplicaId] = {}
        """Where each was marked last."""

    def __len__(self) -> int:
        return len(self._marks)

    def record(self, place: ReplicaId, reason: FaultReason, times: int = 1) -> None:
        who = self._who(place)
        if who not in self._marks and len(self._marks) >= self._most:
            least = min(self._marks, key=lambda other: (self._proofs(other), self._marks[other].total()))
            if self._proofs(least) and not reason.is_proof:
                return
            del self._marks[least], self._last[least]
        self._marks.setdefault(who, Counter())[reason] += times
        self._last[who] = place

    def proven_faulty(self) -> list[ReplicaId]:
        """Who was proven to lie."""
        return sorted({self._place(who) for who in self._marks if self._proofs(who)})

    def counts(self) -> dict[ReplicaId, dict[FaultReason, int]]:
        """Everything, for statistics."""
        marks: dict[ReplicaId, Counter[FaultReason]] = {}
        for who, reasons in self._marks.items():
            marks.setdefault(self._place(who), Counter()).update(reasons)
        return {place: dict(marks[place]) for place in sorted(marks)}

    def is_proven_faulty(self, place: ReplicaId) -> bool:
        return self._proofs(self._who(place)) > 0

    def without_faulty(self, places: Sequence[ReplicaId], least: int = 1) -> list[ReplicaId]:
        """Those of the places that were not proven to lie, in their order; all, if fewer than `least` are left."""
        left = [place for place in places if not self.is_proven_faulty(place)]
        return left if len(left) >= least else list(places)

    def record_all(self, places: Iterable[ReplicaId], reason: FaultReason) -> None:
        for place in places:
            self.record(place, reason)

    def _proofs(self, who: _Replica) -> int:
        return sum(count for reason, count in self._marks.get(who, {}).items() if reason.is_proof)

    def _who(self, place: ReplicaId) -> _Replica:
        try:
            return place if self._roster is None else self._roster.key_of(place)
        except StaleError:
            return place

    def _place(self, who: _Replica) -> ReplicaId:
        now = self._roster.current_id(who) if self._roster is not None and isinstance(who, bytes) else None
        return now or self._last[who]
