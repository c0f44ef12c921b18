"""All attackers that a run over epochs names, at each of its steps, compared with the truth.

All attackers see the same run: a global observer its wires, a coalition its own links, each up to the step and no
further. Attackers come from `attack.registry`; they get observations and score every node. Only this module knows the
roles.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, softmax

from veilcast.errors import ConfigError
from veilcast.lab.attack.insider.attackers import chain_fit_by_epoch, first_spy_by_epoch
from veilcast.lab.attack.insider.coalition_tables import ADVERTS, CHAINS
from veilcast.lab.attack.insider.observations import CoalitionObservations
from veilcast.lab.attack.observations import EpochObservations
from veilcast.lab.attack.observer.attackers import find_certain_subscribers
from veilcast.lab.attack.registry import ACTIVITY, PUBLISHER, Attacker, find_attacker
from veilcast.lab.experiment.mesh_params import MeshEpochs
from veilcast.lab.experiment.params import Measure
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
from veilcast.lab.runs.mesh.advert_observer import AdvertObserver
from veilcast.lab.runs.mesh.attacker_training import judged_nodes, know_network
from veilcast.lab.runs.mesh.epoch_setup import observe_constant_wires, observe_wires
from veilcast.lab.runs.mesh.round_counts import RoundCounts

Mask = NDArray[np.bool_]
Scores = NDArray[np.float64]


class AttackSuite:
    """The attackers of one run, after the epochs that they have been shown."""

    def __init__(
        self,
        params: MeshEpochs,
        people: Population,
        conduct: MeshPolicy,
        data: Path | None,
        view: CoalitionView | None = None,
    ) -> None:
        """`view` replaces the view of the coalition that the models would give."""
        self._attackers = [find_attacker(name, EpochObservations, CoalitionObservations) for name in params.attacks]
        inside = [each for each in self._attackers if each.observes is CoalitionObservations]
        if params.origin == "fresh" and any(each.role == PUBLISHER for each in self._attackers):
            raise ConfigError("where another node publishes in each epoch there is no publisher to be found")
        if inside and not people.insiders.any():
            raise ConfigError("attacks by insiders need some: insiders above 0")
        self._params, self._people, self._conduct, self._data = params, people, conduct, data
        self._asked, self._near = judged_nodes(people), _find_exposed(people)
        self._subscribes = np.zeros(people.graph.nodes, np.bool_)
        self._subscribes[people.subscribers] = True
        self._watches_wires = len(inside) < len(self._attackers)
        self._counts_rounds = any(ACTIVITY in each.needs for each in self._attackers)
        self._hears_adverts = any(_reads_adverts(each) for each in inside)
        self._wires = EpochObservations(people.graph, len(people.subscribers), _COVERED if conduct.mu else 0.0)
        self._rounds = RoundCounts(people, conduct, int(params.steps[-1]))
        self._adverts = AdvertObserver(people, together=params.pace == "instant")
        watches_links = any(not _reads_adverts(each) for each in inside)
        self._view = watch_epochs(people, conduct, int(params.steps[-1])) if watches_links and view is None else view
        self._step = 0

    def see(self, epoch: Epoch, shuffled: GameOutcome | None) -> None:
        """Add one epoch, after these games; a step ends with it if the parameters say so."""
        self._step = epoch.number + 1
        if self._watches_wires:
            hidden = self._params.kappa > 0
            wires = observe_constant_wires(epoch) if hidden else observe_wires(self._people, epoch, shuffled)
            self._wires.see(wires, closely=epoch.number + 1 in self._params.steps)
        if self._counts_rounds:
            self._wires.count_rounds(*self._rounds.draw(epoch))
        if self._hears_adverts:
            self._adverts.hear(epoch)

    def measures(self) -> Iterator[Measure]:
        """The success of each attacker so far."""
        coalition = self._coalition()
        for attacker in self._attackers:
            inside = attacker.observes is CoalitionObservations
            scores = attacker.score_topics(coalition if inside else self._wires)[0]
            if attacker.role == PUBLISHER:
                found = self._measure_publisher(attacker, scores, coalition)
            else:
                found = self._measure_subscribers(attacker.name, scores)
                if not inside:
                    found |= self._measure_members(attacker.name, scores)
            yield from (Measure(attacker.name, metric, self._step, value) for metric, value in found.items())

    def _coalition(self) -> CoalitionObservations | None:
        """All that the coalition has observed by this step; None if no attacker is inside."""
        if self._view is None and not self._hears_adverts:
            return None
        names = [each.name for each in self._attackers]
        known = know_network(self._people, self._params, self._conduct, self._step, names, self._data)
        return self._adverts.observe_coalition(self._view, self._step, known)

    def _measure_subscribers(self, attack: str, scores: Scores) -> dict[str, float]:
        seed = int(stream(self._people.seed, "shuffles", attack)[0])
        found = measure_subscriber_attack(scores, self._subscribes, self._asked, self._near, seed)
        if attack in _LOG_ODDS:
            share = float(np.mean(self._subscribes))
            prior = np.log(share / (1 - share)) if attack == "closure" else 0.0
            found |= measure_probabilities(expit(scores + prior), self._asked)
        return found

    def _measure_members(self, attack: str, scores: Scores) -> dict[str, float]:
        """The AUC among the members of the last mesh; and the nodes that closure is certain of."""
        mesh = self._wires.meshes[-1]
        inside = mesh.members & mesh.asked & self._asked
        found = {"auc_mesh": ranking.auc(scores[inside], self._subscribes[inside])}
        if attack == "closure":
            certain = find_certain_subscribers(mesh)
            found["certain"] = float(np.count_nonzero(certain))
            if certain.any():
                found["certain_precision"] = float(np.mean(self._subscribes[certain]))
        return found

    def _measure_publisher(
        self, attacker: Attacker[Any], scores: Scores, coalition: CoalitionObservations | None
    ) -> dict[str, float]:
        people, honest = self._people, ~self._people.insiders
        found = measure_publisher_attack(scores, people.publisher, honest)
        if attacker.name in _LOG_LIKELIHOODS:
            found |= measure_probabilities(softmax(scores), honest)
        if coalition is not None and _reads_adverts(attacker):
            by_epoch = first_spy_by_epoch(coalition) if ADVERTS in attacker.needs else chain_fit_by_epoch(coalition)
            so_far = np.cumsum(by_epoch, axis=0)[:, honest]
            place = int(np.count_nonzero(honest[: people.publisher]))
            found["disclosed"] = float(rounds_to_disclosure(so_far, place) is not None)
        return found


def _reads_adverts(attacker: Attacker[Any]) -> bool:
    return bool({ADVERTS, CHAINS} & set(attacker.needs))


def _find_exposed(people: Population) -> Mask:
    """Mask of the nodes with an insider as a neighbour."""
    ends = np.repeat(np.arange(people.graph.nodes), people.graph.degrees)
    mask = np.zeros(people.graph.nodes, np.bool_)
    mask[ends[people.insiders[people.graph.targets]]] = True
    return mask


_LOG_ODDS: Final = frozenset({"closure", "group-testing"})
_LOG_LIKELIHOODS: Final = frozenset({"predecessor", "presence", "sender"})
_COVERED: Final = 0.35
"""Approximate probability that a node that no member needs is a cover in P0's meshes. An observer with this number
learns more."""
