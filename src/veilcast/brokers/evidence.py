"""Evidence against replicas: which are proven Byzantine, how and how often, and which merely failed to deliver.

A proof is something that only a Byzantine replica can have made: two dealings or two statements under one signature, or
a share or block that does not match its commitment, received on the link of its sender. A replica that is proven
Byzantine is avoided where others are left, and reported to the operator, who decides. A missing delivery proves
nothing, because links fail. It is counted for the statistics of replica placement.

Evidence is kept by the replica's key. A replica's id contains the version of its node's scheme, which changes with
every join or departure. If evidence were kept by id, any order for the node would clear a Byzantine replica. A replica
is reported under its current id in the newest schemes; a replica that has left, under its id in the last evidence.
Without `ReplicaKeys`, or under a forgotten scheme, only the id of a replica is known.

Bounded: the replicas are those of the overlay, so strangers cannot fill the table. When it is full, the replica with
the least evidence is dropped.
"""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TypeAlias

from veilcast.brokers.keys.scheme import ReplicaId, ReplicaKeys
from veilcast.errors import LocalError, StaleError

_Replica: TypeAlias = bytes | ReplicaId
"""A replica's key, or the id of one whose key is not known."""


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
        """True if only the replica itself can have caused it."""
        return self is not FaultReason.LATE


class FaultEvidence:
    """The evidence of one broker or client about all replicas that it deals with."""

    def __init__(self, most: int, roster: ReplicaKeys | None = None) -> None:
        if most < 1:
            raise LocalError("there is room for at least one suspect")
        self._most, self._roster = most, roster
        self._marks: dict[_Replica, Counter[FaultReason]] = {}
        self._last: dict[_Replica, ReplicaId] = {}
        """Id of each replica in the last evidence against it."""

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
        """The replicas that are proven Byzantine."""
        return sorted({self._place(who) for who in self._marks if self._proofs(who)})

    def counts(self) -> dict[ReplicaId, dict[FaultReason, int]]:
        """All evidence, for statistics."""
        marks: dict[ReplicaId, Counter[FaultReason]] = {}
        for who, reasons in self._marks.items():
            marks.setdefault(self._place(who), Counter()).update(reasons)
        return {place: dict(marks[place]) for place in sorted(marks)}

    def is_proven_faulty(self, place: ReplicaId) -> bool:
        return self._proofs(self._who(place)) > 0

    def without_faulty(self, places: Sequence[ReplicaId], least: int = 1) -> list[ReplicaId]:
        """The replicas that are not proven Byzantine, in their order; all of them, if fewer than `least` are left."""
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
