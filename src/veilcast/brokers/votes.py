"""Votes: who of a neighbouring node has said what, while too few have for it to be believed.

Pure. What is said is a claim, or the end of one. Whoever lies can say what nobody else will ever say, so what each
replica may leave open is bounded; it is told apart by its link.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from veilcast.errors import ExcessError
from veilcast.wire.brokers import Claim

What: TypeAlias = Literal["claim", "end"]


class Votes:
    """Bounded: `most_of_one` words of one replica that are open."""

    def __init__(self, most_of_one: int) -> None:
        self._most_of_one = most_of_one
        self._ballots: dict[tuple[What, bytes], _Ballot] = {}
        self._open: Counter[bytes] = Counter()

    def __len__(self) -> int:
        return len(self._ballots)

    @property
    def most(self) -> int:
        """What one replica has left open."""
        return max(self._open.values(), default=0)

    def claim(self, id_: bytes) -> tuple[Claim, bytes] | None:
        """A claim that somebody has told, and the node that this one is of."""
        ballot = self._ballots.get(("claim", id_))
        return None if ballot is None else (ballot.claim, ballot.node)

    def add(self, what: What, id_: bytes, claim: Claim, node: bytes, replica: bytes) -> Collection[bytes]:
        """All who have said the same, this one among them."""
        ballot = self._ballots.get((what, id_)) or _Ballot(claim, node)
        if replica not in ballot.voters:
            if self._open[replica] >= self._most_of_one:
                raise ExcessError("more of one replica than others have said")
            ballot.voters[replica] = None
            self._open[replica] += 1
            self._ballots[what, id_] = ballot
        return ballot.voters

    def close(self, what: What, id_: bytes) -> None:
        ballot = self._ballots.pop((what, id_), None)
        for replica in () if ballot is None else ballot.voters:
            self._open[replica] -= 1
            if not self._open[replica]:
                del self._open[replica]


@dataclass(slots=True)
class _Ballot:
    claim: Claim
    node: bytes
    voters: dict[bytes, None] = field(default_factory=dict)
