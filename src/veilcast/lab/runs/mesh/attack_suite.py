"""Every attacker that a run over epochs asks for, at each of its steps, held against the truth.

All see the same run: onlookers its wires, a coalition its own links, each up to the step and no further. Attackers get
what they saw, and give a score to every node; who is what is known only here.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final, get_args

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, softmax

from veilcast.errors import ConfigError
from veilcast.lab.experiment.params import Inside, Measure, Outside, Params, Source
from veilcast.lab.measure import ranking
from veilcast.lab.measure.attack_measures import (
    measure_probabilities,
    measure_publisher_attack,
    measure_subscriber_attack,
)
from veilcast.lab.measure.disclosure_time import rounds_to_disclosure
from veilcast.lab.models.coalition_view import CoalitionView, watch_epochs
from veilcast.lab.models.epochs import Epoch, MeshPolicy, Population
from veilcast.lab.models.rng import stream
from veilcast.lab.models.shell_game import GameOutcome
from veilcast.lab.runs.mesh import attacker_training, publisher_attacks
from veilcast.lab.runs.mesh.epoch_observer import EpochObserver
from veilcast.lab.runs.mesh.epoch_setup import observe_constant_wires, observe_wires
from veilcast.lab.runs.mesh.publisher_attacks import AdvertObserver
from veilcast.lab.runs.mesh.round_counts import RoundCounts

Mask = NDArray[np.bool_]
Scores = NDArray[np.float64]


class AttackSuite:
    """The attackers of one run, after the epochs that they have been shown, in turn."""

    def __init__(
        self,
        params: Params,
        people: Population,
        conduct: MeshPolicy,
        data: Path | None,
        view: CoalitionView | None = None,
    ) -> None:
        """`view` is what the coalition saw, where it is not to be what the kernels would show it."""
        wanted = set(params.attacks)
        if params.origin == "fresh" and wanted & set(get_args(Source)):
            raise ConfigError("where another node publishes in each epoch there is no publisher to be found")
        if wanted & _INSIDERS and not people.insiders.any():
            raise ConfigError("attacks by insiders need some: insiders above 0")
        self._params, self._people, self._data = params, people, data
        self._asked, self._near = attacker_training.judged_nodes(people), _near(people)
        self._subscribes = np.zeros(people.graph.nodes, np.bool_)
        self._subscribes[people.subscribers] = True
        self._onlookers = EpochObserver(wanted, len(people.subscribers), _COVERED if conduct.mu else 0.0)
        self._rounds = RoundCounts(people, conduct, int(params.steps[-1]))
        self._spies = AdvertObserver(people, together=params.pace == "instant")
        self._conduct, self._step = conduct, 0
        watching = bool(wanted & (_INSIDERS - _ADVERTS))
        self._view = watch_epochs(people, conduct, int(params.steps[-1])) if watching and view is None else view

    def see(self, epoch: Epoch, shuffled: GameOutcome | None) -> None:
        """One more epoch, after these games; a step ends with it if the parameters say so."""
        wanted = set(self._params.attacks)
        self._step = epoch.number + 1
        if wanted & _WIRES:
            seen = observe_constant_wires(epoch) if self._params.kappa else observe_wires(self._people, epoch, shuffled)
            self._onlookers.see(seen, closely=epoch.number + 1 in self._params.steps)
        if wanted & _COUNTING:
            self._rounds.see(epoch)
        if wanted & _ADVERTS:
            self._spies.hear(epoch)

    def measures(self) -> Iterator[Measure]:
        """What each has reached by now."""
        step, people, params = self._step, self._people, self._params
        suspected: dict[str, Scores] = {}
        if self._view is not None and set(params.attacks) & set(get_args(Inside)):
            suspected = attacker_training.score_suspects(people, self._view, params, step, self._data)
        for attack in params.attacks:
            if attack in get_args(Source):
                found = self._of_publisher(attack)
            elif attack in suspected:
                found = self._of_subscribers(attack, suspected[attack])
            else:
                scores = self._of_wires(attack)
                found = self._of_subscribers(attack, scores) | self._of_mesh(attack, scores)
            yield from (Measure(attack, metric, step, value) for metric, value in found.items())

    def _of_subscribers(self, attack: str, scores: Scores) -> dict[str, float]:
        seed = int(stream(self._people.seed, "shuffles", attack)[0])
        found = measure_subscriber_attack(scores, self._subscribes, self._asked, self._near, seed)
        if attack in _LOG_ODDS:
            share = float(np.mean(self._subscribes))
            prior = np.log(share / (1 - share)) if attack == "closure" else 0.0
            found |= measure_probabilities(expit(scores + prior), self._asked)
        return found

    def _of_wires(self, attack: str) -> Scores:
        match attack:
            case "disclosure":
                return self._rounds.score_by_means()
            case "least-squares":
                return self._rounds.score_by_least_squares()
            case _:
                return self._onlookers.scores(attack)

    def _of_mesh(self, attack: str, scores: Scores) -> dict[str, float]:
        """Among those who are in the last mesh; and of those whom closure is sure of."""
        inside = self._onlookers.members() & self._asked
        found = {"auc_mesh": ranking.auc(scores[inside], self._subscribes[inside])}
        if attack == "closure":
            certain = self._onlookers.certain()
            found["certain"] = float(np.count_nonzero(certain))
            if certain.any():
                found["certain_precision"] = float(np.mean(self._subscribes[certain]))
        return found

    def _of_publisher(self, attack: str) -> dict[str, float]:
        people, honest = self._people, ~self._people.insiders
        rounds: Scores | None = None
        if attack in _ADVERTS:
            rounds = np.array(self._spies.first if attack == "first-spy" else self._spies.fit)
            scores = rounds.mean(axis=0)
        elif attack == "predecessor":
            scores = publisher_attacks.score_by_stems(people, self._seen(), self._conduct, self._step)
        elif attack == "presence":
            scores = publisher_attacks.score_by_presence(people, self._seen(), self._conduct, self._step)
        elif attack == "sender":
            scores = publisher_attacks.score_by_both(people, self._seen(), self._conduct, self._step)
        else:
            scores = self._onlookers.scores(attack)
        found = measure_publisher_attack(scores, people.publisher, honest)
        if attack in _LOG_LIKELIHOODS:
            found |= measure_probabilities(softmax(scores), honest)
        if rounds is not None:
            so_far = np.cumsum(rounds, axis=0)[:, honest]
            place = int(np.count_nonzero(honest[: people.publisher]))
            found["disclosed"] = float(rounds_to_disclosure(so_far, place) is not None)
        return found

    def _seen(self) -> CoalitionView:
        if self._view is None:
            raise ConfigError("this attack needs what insiders see")
        return self._view


def _near(people: Population) -> Mask:
    """Who has an insider beside it."""
    ends = np.repeat(np.arange(people.graph.nodes), people.graph.degrees)
    mask = np.zeros(people.graph.nodes, np.bool_)
    mask[ends[people.insiders[people.graph.targets]]] = True
    return mask


_COUNTING: Final = frozenset({"disclosure", "least-squares"})
_ADVERTS: Final = frozenset({"first-spy", "trilateration"})
_WIRES: Final = frozenset({*get_args(Outside), "flow-source", "roots", "rumor"})
_INSIDERS: Final = frozenset({*get_args(Inside), *get_args(Source)}) - _WIRES
_LOG_ODDS: Final = frozenset({"closure", "group-testing"})
_LOG_LIKELIHOODS: Final = frozenset({"predecessor", "presence", "sender"})
_COVERED: Final = 0.35
"""About so many of those whom nobody needs are covers in P0's meshes; an observer who reckons with it learns more."""
