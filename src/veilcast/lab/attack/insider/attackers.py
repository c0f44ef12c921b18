"""Every attacker that looks from inside, by its name: what a coalition has in, a score for each node out.

Each is a file of its own with its own theory; here is only what of it each is shown. What everybody knows of how the
network is run is told them: how many act as subscribers, whether choices are kept, how long stems are. The trained ones
need what they learned on worlds of the coalition's own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from veilcast.lab.attack.classifiers import BinnedClassifier, LinearClassifier
from veilcast.lab.attack.insider import advert_origin, lone_insider, publisher_evidence, swap_handover
from veilcast.lab.attack.insider.coalition_tables import ADVERTS, CHAINS, NOTES, ORIGINS, SIGHTS, STEMS
from veilcast.lab.attack.insider.group_tests import build_group_tests, infer_beliefs
from veilcast.lab.attack.insider.node_features import extract_node_features
from veilcast.lab.attack.insider.observations import CoalitionObservations, score_chain_fit

Scores = NDArray[np.float64]


@dataclass(frozen=True)
class PublicKnowledge:
    acting: float = 0.1
    """The share of honest nodes that act as subscribers, covers too."""
    kept: bool = False
    """Whether nodes keep their parents, and relays whom they hand stems to."""
    onward: float = 0.5
    """The probability that a relay hands a stem on."""
    departures: int = 0
    """Once in how many epochs publishers let go what they have; 0 in every one."""
    hold: int = 0
    """For how many epochs roots keep a note at most."""
    trained: Mapping[tuple[str, int], LinearClassifier | BinnedClassifier] = field(default_factory=dict)
    """By attack and number of epochs."""


class CoalitionAttacker(NamedTuple):
    attack: str
    role: str
    """Whom it looks for."""
    scores: Callable[[CoalitionObservations, PublicKnowledge], Scores]
    needs: frozenset[str]
    """What must have been overheard."""
    alone: bool = False
    """Whether it is for an insider who has nobody to put things together with."""


def _group_testing(coalition: CoalitionObservations, known: PublicKnowledge) -> Scores:
    tests = build_group_tests(coalition.graph, coalition.seen, kept=known.kept)
    return infer_beliefs(tests, coalition.graph.nodes, known.acting)


def _linear(coalition: CoalitionObservations, known: PublicKnowledge) -> Scores:
    return _trained(coalition, known, "linear")


def _binned(coalition: CoalitionObservations, known: PublicKnowledge) -> Scores:
    return _trained(coalition, known, "binned")


def _trained(coalition: CoalitionObservations, known: PublicKnowledge, attack: str) -> Scores:
    shown = extract_node_features(coalition.graph, coalition.seen, _group_testing(coalition, known))
    # A run that ends before a number of epochs is over is judged by what was learned for that.
    enough = min(epochs for name, epochs in known.trained if name == attack and epochs >= coalition.epochs)
    return known.trained[attack, enough].scores(shown)


def _handed(coalition: CoalitionObservations, _: PublicKnowledge) -> Scores:
    return swap_handover.score_handover(coalition.graph, coalition.seen, coalition.distance)


def _first_spy(coalition: CoalitionObservations, _: PublicKnowledge) -> Scores:
    adverts = coalition.adverts
    return advert_origin.score_first_spy(
        adverts.message, adverts.peer, np.zeros(len(adverts.peer)), coalition.graph.nodes
    )


def _trilateration(coalition: CoalitionObservations, _: PublicKnowledge) -> Scores:
    found = [score_chain_fit(coalition.graph, coalition.chains, epoch) for epoch in range(coalition.epochs)]
    told = [each for each in found if each is not None]
    return np.mean(told, axis=0) if told else np.zeros(coalition.graph.nodes)


def _predecessor(coalition: CoalitionObservations, known: PublicKnowledge) -> Scores:
    graph, enemy, far = coalition.graph, coalition.hostile, coalition.distance
    return publisher_evidence.score_stems(graph, coalition.passed, enemy, far, known.onward, kept=known.kept)


def _presence(coalition: CoalitionObservations, known: PublicKnowledge) -> Scores:
    return publisher_evidence.score_presence(coalition.seen.present, coalition.read > 0, known.hold)


def _sender(coalition: CoalitionObservations, known: PublicKnowledge) -> Scores:
    graph, seen, run = coalition.graph, coalition.seen, {"departures": known.departures, "hold": known.hold}
    return publisher_evidence.score_stems_and_presence(
        graph, seen, coalition.passed, coalition.read, onward=known.onward, **run
    )


def _pruning(coalition: CoalitionObservations, known: PublicKnowledge) -> Scores:
    return lone_insider.score_subscribers_by_pruning(coalition, known.acting, timed=False)


def _pruning_timed(coalition: CoalitionObservations, known: PublicKnowledge) -> Scores:
    return lone_insider.score_subscribers_by_pruning(coalition, known.acting, timed=True)


def _pruning_first(coalition: CoalitionObservations, _: PublicKnowledge) -> Scores:
    return lone_insider.score_publisher_by_first_advert(coalition)


def _pruning_chains(coalition: CoalitionObservations, _: PublicKnowledge) -> Scores:
    return lone_insider.score_publisher_by_chains(coalition)


_ON_LINKS: Final = frozenset({SIGHTS, ORIGINS})
COALITION_ATTACKERS: Final = (
    CoalitionAttacker("group-testing", "subscriber", _group_testing, _ON_LINKS),
    CoalitionAttacker("linear", "subscriber", _linear, _ON_LINKS),
    CoalitionAttacker("binned", "subscriber", _binned, _ON_LINKS),
    CoalitionAttacker("handed", "subscriber", _handed, _ON_LINKS),
    CoalitionAttacker("first-spy", "publisher", _first_spy, frozenset({ADVERTS})),
    CoalitionAttacker("trilateration", "publisher", _trilateration, frozenset({CHAINS})),
    CoalitionAttacker("predecessor", "publisher", _predecessor, frozenset({STEMS, ORIGINS})),
    CoalitionAttacker("presence", "publisher", _presence, frozenset({NOTES})),
    CoalitionAttacker("sender", "publisher", _sender, frozenset({STEMS, ORIGINS, NOTES})),
    CoalitionAttacker("pruning", "subscriber", _pruning, _ON_LINKS, alone=True),
    CoalitionAttacker("pruning-timed", "subscriber", _pruning_timed, _ON_LINKS, alone=True),
    CoalitionAttacker("pruning", "publisher", _pruning_first, frozenset({ADVERTS}), alone=True),
    CoalitionAttacker("pruning-chains", "publisher", _pruning_chains, frozenset({CHAINS}), alone=True),
)
TRAINED: Final = ("linear", "binned")
ATTACKS: Final = tuple(dict.fromkeys(each.attack for each in COALITION_ATTACKERS))
UNTRAINED: Final = tuple(attack for attack in ATTACKS if attack not in TRAINED)
