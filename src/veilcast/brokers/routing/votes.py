"""Votes: who of a neighbouring node has said what, while too few have for it to be believed.

Pure. What is said is a claim, or the end of one. Whoever lies can say what nobody else will ever say, so what each
replica may leave open is bounded; it is told apart by its link.

A replica says nothing that something it has said covers. So who has said what covers a claim counts as a voice for it,
once somebody has said the claim itself: else one reader, who brings a wide subscription to a single replica and another
to the next, would leave everybody behind them with a voice too few. With that a liar gains nothing, for it might as
well have said the claim.

The proof of a claim is no part of its id, and whose holds is known only where an advertisement is: each voice is kept
with the proof that it came with.
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
    """A subscription, as something that may cover others; whose reader signed it is not known yet."""

    claim: ActiveClaim
    subject: Hashable


def covering_candidate(claim: Claim, language: PredicateCodec[Any, Any]) -> CoveringCandidate | None:
    """None for an advertisement, which covers nothing."""
    if claim.kind is ClaimKind.ADVERTISEMENT:
        return None
    words = language.decode_subscription(claim)
    return CoveringCandidate(ActiveClaim(claim.id, claim.until_us, b"", words), language.subject(words))


class ClaimVotes:
    """Bounded: `most_of_one` words of one replica that are open; of these, the last `CANDIDATES_MAX` of a subject are
    held
    against what others have said."""

    def __init__(self, most_of_one: int, covers: Callable[[ActiveClaim, ActiveClaim], bool]) -> None:
        self._most_of_one, self._covers = most_of_one, covers
        self._ballots: dict[tuple[BallotKind, bytes], _Ballot] = {}
        self._open: Counter[bytes] = Counter()
        self._wide: dict[tuple[bytes, Hashable], dict[bytes, dict[bytes, ActiveClaim]]] = {}
        """By node and subject, and then by replica: subscriptions that are open."""
        self.open_claims = 0
        """Claims that are open."""

    def __len__(self) -> int:
        return len(self._ballots)

    @property
    def most_open(self) -> int:
        """What one replica has left open."""
        return max(self._open.values(), default=0)

    def reported_claims(self, id_: bytes) -> dict[bytes, Claim]:
        """A claim as replicas have told it, by their keys."""
        ballot = self._ballots.get(("claim", id_))
        return {} if ballot is None else ballot.reported

    def reporting_node(self, id_: bytes) -> bytes | None:
        """Whose replicas have told this claim."""
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
        wide: CoveringCandidate | None = None,
    ) -> list[bytes]:
        """The ids of all that have a voice more by it, itself first. `wide` for a subscription."""
        ballot = self._ballots.get((what, id_)) or _Ballot(node, wide)
        if replica in ballot.reported:
            ballot.reported[replica] = claim
            return [id_]
        if self._open[replica] >= self._most_of_one:
            raise ExcessError("more of one replica than others have said")
        ballot.reported[replica] = claim
        self._open[replica] += 1
        if (what, id_) not in self._ballots:
            self._ballots[what, id_] = ballot
            self.open_claims += what == "claim"
        return [id_] if wide is None else [id_, *self._compare(id_, ballot, wide, replica)]

    def close(self, what: BallotKind, id_: bytes) -> None:
        ballot = self._ballots.pop((what, id_), None)
        if ballot is None:
            return
        self.open_claims -= what == "claim"
        for replica in ballot.reported:
            self._open[replica] -= 1
            if not self._open[replica]:
                del self._open[replica]
            if ballot.candidate is not None:
                self._forget(id_, ballot, replica, ballot.candidate.subject)

    def _compare(self, id_: bytes, ballot: _Ballot, wide: CoveringCandidate, replica: bytes) -> list[bytes]:
        """Hold it against what others of the node have open: those that it covers have this voice, it has theirs."""
        group = self._wide.setdefault((ballot.node, wide.subject), {})
        more: dict[bytes, None] = {}
        for other, each in group.items():
            if other == replica:
                continue
            for open_, standing in each.items():
                if self._covers(wide.claim, standing):
                    self._ballots["claim", open_].implied_supporters.add(replica)
                    more[open_] = None
                elif other not in ballot.reported and self._covers(standing, wide.claim):
                    ballot.implied_supporters.add(other)
        mine = group.setdefault(replica, {})
        mine[id_] = wide.claim
        if len(mine) > CANDIDATES_MAX:
            del mine[next(iter(mine))]
        return list(more)

    def _forget(self, id_: bytes, ballot: _Ballot, replica: bytes, subject: Hashable) -> None:
        group = self._wide.get((ballot.node, subject), {})
        mine = group.get(replica, {})
        mine.pop(id_, None)
        if not mine:
            group.pop(replica, None)
        if not group:
            self._wide.pop((ballot.node, subject), None)


@dataclass(slots=True)
class _Ballot:
    node: bytes
    candidate: CoveringCandidate | None
    reported: dict[bytes, Claim] = field(default_factory=dict)
    implied_supporters: set[bytes] = field(default_factory=set)
    """Who has said what covers it."""


CANDIDATES_MAX: Final = 512
