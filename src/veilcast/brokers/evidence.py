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
    """A kind of evidence. `brokers status --json` prints the values, so they must not change."""

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

    def __init__(self, most: int, replica_keys: ReplicaKeys | None = None) -> None:
        if most < 1:
            raise LocalError("there must be room for at least one replica")
        self._most, self._replica_keys = most, replica_keys
        self._counts: dict[_Replica, Counter[FaultReason]] = {}
        self._last: dict[_Replica, ReplicaId] = {}
        """Id of each replica in the last evidence against it."""

    def __len__(self) -> int:
        return len(self._counts)

    def record(self, replica_id: ReplicaId, reason: FaultReason, times: int = 1) -> None:
        replica = self._identify(replica_id)
        if replica not in self._counts and len(self._counts) >= self._most:
            weakest = min(self._counts, key=lambda other: (self._proofs(other), self._counts[other].total()))
            if self._proofs(weakest) and not reason.is_proof:
                return
            del self._counts[weakest], self._last[weakest]
        self._counts.setdefault(replica, Counter())[reason] += times
        self._last[replica] = replica_id

    def proven_faulty(self) -> list[ReplicaId]:
        """The replicas that are proven Byzantine."""
        return sorted({self._current_id(replica) for replica in self._counts if self._proofs(replica)})

    def counts(self) -> dict[ReplicaId, dict[FaultReason, int]]:
        """All evidence, for statistics."""
        by_replica: dict[ReplicaId, Counter[FaultReason]] = {}
        for replica, reasons in self._counts.items():
            by_replica.setdefault(self._current_id(replica), Counter()).update(reasons)
        return {replica_id: dict(by_replica[replica_id]) for replica_id in sorted(by_replica)}

    def is_proven_faulty(self, replica_id: ReplicaId) -> bool:
        return self._proofs(self._identify(replica_id)) > 0

    def without_faulty(self, replicas: Sequence[ReplicaId], minimum: int = 1) -> list[ReplicaId]:
        """The replicas that are not proven Byzantine, in their order; all of them, if fewer than `minimum` are left."""
        remaining = [replica_id for replica_id in replicas if not self.is_proven_faulty(replica_id)]
        return remaining if len(remaining) >= minimum else list(replicas)

    def record_all(self, replicas: Iterable[ReplicaId], reason: FaultReason) -> None:
        for replica_id in replicas:
            self.record(replica_id, reason)

    def _proofs(self, replica: _Replica) -> int:
        return sum(count for reason, count in self._counts.get(replica, {}).items() if reason.is_proof)

    def _identify(self, replica_id: ReplicaId) -> _Replica:
        try:
            return replica_id if self._replica_keys is None else self._replica_keys.key_of(replica_id)
        except StaleError:
            return replica_id

    def _current_id(self, replica: _Replica) -> ReplicaId:
        now = (
            self._replica_keys.current_id(replica)
            if self._replica_keys is not None and isinstance(replica, bytes)
            else None
        )
        return now or self._last[replica]
