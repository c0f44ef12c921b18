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

from veilcast.lab.attack import first_spy, handed, predecessor, presence, pruner, sender
from veilcast.lab.attack.classifiers import Binned, Linear
from veilcast.lab.attack.coalition import Coalition, fits
from veilcast.lab.attack.dossier import ADVERTS, CHAINS, NOTES, ORIGINS, SIGHTS, STEMS
from veilcast.lab.attack.features import features
from veilcast.lab.attack.group_testing import beliefs
from veilcast.lab.attack.pools import pooled

Scores = NDArray[np.float64]


@dataclass(frozen=True)
class Known:
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
    trained: Mapping[tuple[str, int], Linear | Binned] = field(default_factory=dict)
    """By attack and number of epochs."""


class Conspirator(NamedTuple):
    attack: str
    role: str
    """Whom it looks for."""
    scores: Callable[[Coalition, Known], Scores]
    needs: frozenset[str]
    """What must have been overheard."""
    alone: bool = False
    """Whether it is for an insider who has nobody to put things together with."""


def _group_testing(coalition: Coalition, known: Known) -> Scores:
    tests = pooled(coalition.graph, coalition.seen, kept=known.kept)
    return beliefs(tests, coalition.graph.nodes, known.acting)


def _linear(coalition: Coalition, known: Known) -> Scores:
    return _trained(coalition, known, "linear")


def _binned(coalition: Coalition, known: Known) -> Scores:
    return _trained(coalition, known, "binned")


def _trained(coalition: Coalition, known: Known, attack: str) -> Scores:
    shown = features(coalition.graph, coalition.seen, _group_testing(coalition, known))
    # A run that ends before a number of epochs is over is judged by what was learned for that.
    enough = min(epochs for name, epochs in known.trained if name == attack and epochs >= coalition.epochs)
    return known.trained[attack, enough].scores(shown)


def _handed(coalition: Coalition, _: Known) -> Scores:
    return handed.scores(coalition.graph, coalition.seen, coalition.distance)


def _first_spy(coalition: Coalition, _: Known) -> Scores:
    adverts = coalition.adverts
    return first_spy.votes(adverts.message, adverts.peer, np.zeros(len(adverts.peer)), coalition.graph.nodes)


def _trilateration(coalition: Coalition, _: Known) -> Scores:
    found = [fits(coalition.graph, coalition.chains, epoch) for epoch in range(coalition.epochs)]
    told = [each for each in found if each is not None]
    return np.mean(told, axis=0) if told else np.zeros(coalition.graph.nodes)


def _predecessor(coalition: Coalition, known: Known) -> Scores:
    graph, enemy, far = coalition.graph, coalition.enemy, coalition.distance
    return predecessor.scores(graph, coalition.passed, enemy, far, known.onward, kept=known.kept)


def _presence(coalition: Coalition, known: Known) -> Scores:
    return presence.publishers(coalition.seen.present, coalition.read > 0, known.hold)


def _sender(coalition: Coalition, known: Known) -> Scores:
    graph, seen, run = coalition.graph, coalition.seen, {"departures": known.departures, "hold": known.hold}
    return sender.scores(graph, seen, coalition.passed, coalition.read, onward=known.onward, **run)


def _pruning(coalition: Coalition, known: Known) -> Scores:
    return pruner.readers(coalition, known.acting, timed=False)


def _pruning_timed(coalition: Coalition, known: Known) -> Scores:
    return pruner.readers(coalition, known.acting, timed=True)


def _pruning_first(coalition: Coalition, _: Known) -> Scores:
    return pruner.first_told(coalition)


def _pruning_chains(coalition: Coalition, _: Known) -> Scores:
    return pruner.nearest(coalition)


_ON_LINKS: Final = frozenset({SIGHTS, ORIGINS})
CONSPIRATORS: Final = (
    Conspirator("group-testing", "subscriber", _group_testing, _ON_LINKS),
    Conspirator("linear", "subscriber", _linear, _ON_LINKS),
    Conspirator("binned", "subscriber", _binned, _ON_LINKS),
    Conspirator("handed", "subscriber", _handed, _ON_LINKS),
    Conspirator("first-spy", "publisher", _first_spy, frozenset({ADVERTS})),
    Conspirator("trilateration", "publisher", _trilateration, frozenset({CHAINS})),
    Conspirator("predecessor", "publisher", _predecessor, frozenset({STEMS, ORIGINS})),
    Conspirator("presence", "publisher", _presence, frozenset({NOTES})),
    Conspirator("sender", "publisher", _sender, frozenset({STEMS, ORIGINS, NOTES})),
    Conspirator("pruning", "subscriber", _pruning, _ON_LINKS, alone=True),
    Conspirator("pruning-timed", "subscriber", _pruning_timed, _ON_LINKS, alone=True),
    Conspirator("pruning", "publisher", _pruning_first, frozenset({ADVERTS}), alone=True),
    Conspirator("pruning-chains", "publisher", _pruning_chains, frozenset({CHAINS}), alone=True),
)
TRAINED: Final = ("linear", "binned")
ATTACKS: Final = tuple(dict.fromkeys(each.attack for each in CONSPIRATORS))
UNTRAINED: Final = tuple(attack for attack in ATTACKS if attack not in TRAINED)
