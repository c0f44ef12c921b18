"""Votes: which replicas of a neighbouring node have reported a claim or its withdrawal, before enough have for it to be
believed.

1. Property: a claim is believed only if an honest replica of the node has reported it or one that covers it, and a
   withdrawal only if an honest replica has reported it.
   Reason: more than f replicas must have done so (`Deployment.includes_honest`). Links identify the replicas.

2. Property: a Byzantine replica fills no more than its own part of the votes.
   Reason: it can report claims that no other replica will ever report. So the open reports of each replica are bounded.

3. Property: a claim that all honest replicas of the node believe is believed here.
   Reason: a replica does not report a claim that one of its earlier claims covers. So a replica that has reported a
   covering claim counts as a supporter, once some replica has reported the claim itself. Otherwise a subscriber that
   sends a wide subscription to a single replica, and another one to the next, would leave everyone behind them one
   supporter short. A Byzantine replica gains nothing by this rule: it could have reported the claim itself.

4. Property: an invalid proof that a Byzantine replica attaches hides no valid one.
   Reason: the proof of a claim is not part of its id, and it can be checked only where a matching advertisement is
   known. So each report keeps its own proof.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Hashable
from dataclasses import dataclass, field
from typing import Any, Final, Literal, NamedTuple, TypeAlias

from veilcast.brokers.routing.claim_semantics import ActiveClaim, PredicateCodec
from veilcast.errors import ExcessError
from veilcast.wire.brokers import Claim, ClaimKind

BallotKind: TypeAlias = Literal["claim", "end"]


class CoveringCandidate(NamedTuple):
    """A subscription that may cover others. Its signer's key is not known yet."""

    claim: ActiveClaim
    subject: Hashable


def covering_candidate(claim: Claim, codec: PredicateCodec[Any, Any]) -> CoveringCandidate | None:
    """None for an advertisement, which covers nothing."""
    if claim.kind is ClaimKind.ADVERTISEMENT:
        return None
    predicate = codec.decode_subscription(claim)
    return CoveringCandidate(ActiveClaim(claim.id, claim.until_us, b"", predicate), codec.subject(predicate))


class ClaimVotes:
    """Bounded: `most_of_one` open reports of one replica. Of these, the last `CANDIDATES_MAX` of a subject are compared
    with the reports of other replicas."""

    def __init__(self, most_of_one: int, covers: Callable[[ActiveClaim, ActiveClaim], bool]) -> None:
        self._replica_max, self._covers = most_of_one, covers
        self._ballots: dict[tuple[BallotKind, bytes], _Ballot] = {}
        self._open_counts: Counter[bytes] = Counter()
        self._candidates: dict[tuple[bytes, Hashable], dict[bytes, dict[bytes, ActiveClaim]]] = {}
        """Open subscriptions by node and subject, then by replica."""
        self.open_claims = 0
        """Number of open claims."""

    def __len__(self) -> int:
        return len(self._ballots)

    @property
    def most_open(self) -> int:
        """Most open reports of one replica."""
        return max(self._open_counts.values(), default=0)

    def reported_claims(self, id_: bytes) -> dict[bytes, Claim]:
        """The claim as replicas have reported it, by their keys."""
        ballot = self._ballots.get(("claim", id_))
        return {} if ballot is None else ballot.reported

    def reporting_node(self, id_: bytes) -> bytes | None:
        """The node whose replicas have reported this claim."""
        ballot = self._ballots.get(("claim", id_))
        return None if ballot is None else ballot.node

    def supporters(self, what: BallotKind, id_: bytes) -> Collection[bytes]:
        ballot = self._ballots[what, id_]
        return ballot.reported.keys() | ballot.implied_supporters

    def add(
        self,
        what: BallotKind,
        id_: bytes,
        claim: Claim,
        node: bytes,
        replica: bytes,
        candidate: CoveringCandidate | None = None,
    ) -> list[bytes]:
        """Add a report. Returns the ids of all claims that gained a supporter, this one first. Pass `candidate` for
        a subscription."""
        ballot = self._ballots.get((what, id_)) or _Ballot(node, candidate)
        if replica in ballot.reported:
            ballot.reported[replica] = claim
            return [id_]
        if self._open_counts[replica] >= self._replica_max:
            raise ExcessError("more unconfirmed reports of one replica than allowed")
        ballot.reported[replica] = claim
        self._open_counts[replica] += 1
        if (what, id_) not in self._ballots:
            self._ballots[what, id_] = ballot
            self.open_claims += what == "claim"
        return [id_] if candidate is None else [id_, *self._compare(id_, ballot, candidate, replica)]

    def close(self, what: BallotKind, id_: bytes) -> None:
        ballot = self._ballots.pop((what, id_), None)
        if ballot is None:
            return
        self.open_claims -= what == "claim"
        for replica in ballot.reported:
            self._open_counts[replica] -= 1
            if not self._open_counts[replica]:
                del self._open_counts[replica]
            if ballot.candidate is not None:
                self._forget(id_, ballot, replica, ballot.candidate.subject)

    def _compare(self, id_: bytes, ballot: _Ballot, candidate: CoveringCandidate, replica: bytes) -> list[bytes]:
        """Compare with the open claims of other replicas of the node: this replica supports the claims that the new one
        covers, and replicas with a covering claim support the new one."""
        group = self._candidates.setdefault((ballot.node, candidate.subject), {})
        more: dict[bytes, None] = {}
        for other, each in group.items():
            if other == replica:
                continue
            for other_id, claim in each.items():
                if self._covers(candidate.claim, claim):
                    self._ballots["claim", other_id].implied_supporters.add(replica)
                    more[other_id] = None
                elif other not in ballot.reported and self._covers(claim, candidate.claim):
                    ballot.implied_supporters.add(other)
        mine = group.setdefault(replica, {})
        mine[id_] = candidate.claim
        if len(mine) > CANDIDATES_MAX:
            del mine[next(iter(mine))]
        return list(more)

    def _forget(self, id_: bytes, ballot: _Ballot, replica: bytes, subject: Hashable) -> None:
        group = self._candidates.get((ballot.node, subject), {})
        mine = group.get(replica, {})
        mine.pop(id_, None)
        if not mine:
            group.pop(replica, None)
        if not group:
            self._candidates.pop((ballot.node, subject), None)


@dataclass(slots=True)
class _Ballot:
    node: bytes
    candidate: CoveringCandidate | None
    reported: dict[bytes, Claim] = field(default_factory=dict)
    implied_supporters: set[bytes] = field(default_factory=set)
    """Replicas that have reported a covering claim."""


CANDIDATES_MAX: Final = 512
