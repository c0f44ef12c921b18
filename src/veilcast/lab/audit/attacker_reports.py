"""Reports of all attackers in an audit: the suspects, the confidence, and, if roles are known, the measures.

Without known roles a report has scores, and confidence that suspects keep standing out. An attacker *names* the nodes
that it is sure of. With known roles there are the measures of `lab/measure`: for subscribers the AUC with its interval,
the share found at 1 % false alarms, and the anonymity sets; for publishers whether the first guess is right. Intervals
are corrected for the number of attackers, because one of them might be lucky.

Cadence says only which nodes differ from all others. Flow correlation says whose volumes rise together, as those of
nodes on one busy machine do. Neither says that a node subscribes, so they name no node. Each counts as an attacker on a
role only where its scores go with that role more than by chance.

Confidence without the truth: does the attacker suspect the same node again? The record is cut into parts, and the
attack is made on each part. If scores meant nothing, a node would be among the first share x of all nodes in each part
by chance alone. Of m parts, the probability to be among the first x in all parts except at most one is

    m x^(m-1) - (m-1) x^m

and it is multiplied by the number of nodes, one of which might be lucky. Confidence is one minus this. One part may be
missed, because subscribers come and go and notifications are lost. Parts in which all nodes look alike say nothing and
do not count. This is confidence that a node stands out and keeps standing out. Only the truth can tell whether its role
is the reason: an attacker that takes the middle of a mesh for its publisher does so again as long as the mesh is the
same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from veilcast.lab.audit.observed import AttackerGuesses
from veilcast.lab.audit.operator_files import ROLES, ListedMember
from veilcast.lab.measure import anonymity, ranking


def confidence(parts: NDArray[np.float64]) -> NDArray[np.float64]:
    """The confidence in each node; `parts` has a row of scores for each part of the record."""
    telling = parts[parts.min(axis=1) < parts.max(axis=1)]
    count, nodes = telling.shape
    if count < _PARTS_MIN:
        return np.zeros(nodes)
    # The share of nodes that are as suspect or more, in each part; then the second largest over all parts.
    first = np.array([np.mean(scores >= scores[:, None], axis=1) for scores in telling])
    x = np.sort(first, axis=0)[-2]
    by_chance = count * x ** (count - 1) - (count - 1) * x**count
    found: NDArray[np.float64] = np.maximum(0.0, 1 - nodes * by_chance)
    return found


class SuspectReport(msgspec.Struct, frozen=True):
    node: str
    score: float
    confidence: float
    among: int
    """Number of nodes that are as suspect or more, this one included."""
    right: bool | None = None
    """Whether the node has the role; None if that is unknown."""


class AttackerReport(msgspec.Struct, frozen=True):
    attack: str
    role: str
    says: bool
    """Whether it tells any two nodes apart."""
    suspects: tuple[SuspectReport, ...] = ()
    """The named nodes, then the most suspect of the others."""
    named: int = 0
    measures: dict[str, float] = {}
    """Empty if roles are unknown."""

    @property
    def counts(self) -> bool:
        """Whether its scores are about roles."""
        return self.says and (self.attack not in UNLIKE or self.measures.get("auc_low", 0.0) > 0.5)


def judge_attackers(
    nodes: Sequence[str], guesses: Sequence[AttackerGuesses], members: Sequence[ListedMember]
) -> tuple[AttackerReport, ...]:
    """Reports by role, the most telling first."""
    tried = {role: sum(each.role == role for each in guesses) for role in ROLES}
    having = {role: {member.node for member in members if member.role == role} for role in ROLES}
    found = [_judge(nodes, each, having if members else None, tried[each.role]) for each in guesses]
    return tuple(sorted(found, key=lambda each: (ROLES.index(each.role), not each.counts, -_worth(each), each.attack)))


def _judge(
    nodes: Sequence[str], guess: AttackerGuesses, having: Mapping[str, set[str]] | None, tried: int
) -> AttackerReport:
    scores = guess.whole
    if not len(scores) or scores.min() == scores.max():
        return AttackerReport(guess.attack, guess.role, says=False, measures=_measures(nodes, guess, having, tried))
    sure = np.zeros(len(nodes)) if guess.attack in UNLIKE else confidence(guess.parts)
    own = having[guess.role] or None if having is not None else None
    among = len(nodes) - np.searchsorted(np.sort(scores), scores, side="left")
    first = np.lexsort((np.arange(len(nodes)), -scores, -(sure >= SURE).astype(np.int8)))
    named = int(np.count_nonzero(sure >= SURE))
    return AttackerReport(
        guess.attack,
        guess.role,
        True,
        tuple(
            SuspectReport(
                nodes[each],
                float(scores[each]),
                float(sure[each]),
                int(among[each]),
                None if own is None else nodes[each] in own,
            )
            for each in first[: max(_SUSPECTS, named)].tolist()
        ),
        named,
        _measures(nodes, guess, having, tried),
    )


def _measures(
    nodes: Sequence[str], guess: AttackerGuesses, having: Mapping[str, set[str]] | None, tried: int
) -> dict[str, float]:
    if having is None:
        return {}
    asked = np.array([guess.role == "publisher" or node not in having["publisher"] for node in nodes], np.bool_)
    positive = np.array([node in having[guess.role] for node in nodes], np.bool_)[asked]
    scores = guess.whole[asked]
    first, second = int(np.count_nonzero(positive)), int(np.count_nonzero(~positive))
    if not first or not second:
        return {}
    auc = ranking.auc(scores, positive)
    low, high = ranking.auc_interval(auc, first, second, miss=0.05 / tried)
    found = {"auc": auc, "auc_low": low, "auc_high": high, "base_rate": first / (first + second)}
    if guess.role == "subscriber":
        found["tpr_1"] = ranking.true_positives_at(scores, positive, 0.01)
        found["precision_at_size"] = ranking.precision_at(scores, positive, first)
    else:
        best = scores == scores.max()
        found["success"] = float(np.mean(positive[best]))
    return found | anonymity.summarise_sets(anonymity.anonymity_set_sizes(scores, positive))


def _worth(attacker: AttackerReport) -> float:
    """The quantity that the best attacker has most of."""
    if attacker.measures:
        return attacker.measures["auc"]
    sure = [suspect.confidence for suspect in attacker.suspects]
    if not attacker.named:
        return max(sure, default=0.0) / 2
    # There are few publishers: an attacker that names many knows less than one that names one.
    return sum(sure[: attacker.named]) if attacker.role == "subscriber" else max(sure) / attacker.named


_PARTS_MIN: Final = 3
UNLIKE: Final = frozenset({"cadence", "flow-correlation"})
"""Attacks that tell which nodes differ from others, or move with them, but not why."""
SURE: Final = 0.95
_SUSPECTS: Final = 10
