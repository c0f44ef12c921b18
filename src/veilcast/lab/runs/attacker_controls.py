"""Controls of attackers from outside the package, run before their results count.

- The positive control: a run where attackers of the package succeed. A mesh without defence over ten epochs, or on
  wires whose messages leave at once; the paper's trees and relay; streams that are foiled by independent noise. The
  attacker should do better than a guess there: if it does not, what it does not find elsewhere says nothing.
- The null control: the same runs, with the scores of nodes, or of the candidates of a step, dealt out at random. This
  is the same as shuffled labels, and gives an AUC of .5, or the share of a guess. If it does not, the result of a run
  does not follow from the attacker's scores, and the attacker is refused.

Both are means over `SEEDS` seeds, with 95 % intervals; over half as many where machines make the runs. The AUC of an
attacker on the publisher is the share of other nodes that it ranks below the publisher.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache, partial
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from veilcast.lab.attack import registry
from veilcast.lab.attack.insider.observations import CoalitionObservations
from veilcast.lab.attack.insider.tree_nodes import TreeObservations
from veilcast.lab.attack.observer.capture_job import guess_from_captures
from veilcast.lab.attack.observer.observations import CaptureObservations
from veilcast.lab.attack.registry import PUBLISHER, SUBSCRIBER, Attacker
from veilcast.lab.attack.server.observations import ServerObservations
from veilcast.lab.attack.stream.model import StreamObservations
from veilcast.lab.experiment.foil_params import FoilGuesses
from veilcast.lab.experiment.mesh_params import MeshEpochs, MeshWires
from veilcast.lab.experiment.params import RunParams
from veilcast.lab.experiment.relay_params import RelayAttacks
from veilcast.lab.experiment.tree_params import TreeAttacks
from veilcast.lab.models.rng import stream
from veilcast.lab.runs.mesh.wire_attackers import CaptureRoles, WireCapture, measure_capture_guesses
from veilcast.lab.runs.mesh.wires_machines import take_capture
from veilcast.lab.runs.table import run_by


class ControlResult(NamedTuple):
    attacker: str
    what: str
    """The measure, and where it is taken."""
    chance: float
    positive: tuple[float, float, float]
    """Mean, and both ends of its 95 % interval."""
    null: tuple[float, float, float]

    @property
    def succeeds(self) -> bool:
        return self.positive[1] > self.chance

    @property
    def is_fair(self) -> bool:
        return abs(self.null[0] - self.chance) <= max(_FAIR, 2 * (self.null[2] - self.null[1]))

    def describe(self) -> str:
        mean, low, high = self.positive
        found = f"{mean:.2f} [{low:.2f}, {high:.2f}]"
        blind = f"shuffled {self.null[0]:.2f} [{self.null[1]:.2f}, {self.null[2]:.2f}]"
        verdict = "" if self.succeeds else "; no better than a guess, so what it does not find elsewhere says nothing"
        return f"attacker {self.attacker}, controls: {self.what} {found}, {blind}, a guess {self.chance:.2f}{verdict}"


class _Control(NamedTuple):
    measure: Callable[[int], float]
    """How well the attacker that is installed under its name does, by seed."""
    chance: float
    what: str
    by_machines: bool = False


def run_controls(attacker: Attacker[Any]) -> ControlResult:
    """Both controls of an attacker that is installed. Raises `LocalError` if the attacker fails."""
    control = _control_of(attacker)
    shuffled = replace(attacker, score=_Shuffled(attacker))
    results = []
    try:
        seeds = SEEDS // 2 if control.by_machines else SEEDS
        for each in (attacker, shuffled):
            registry.FOREIGN[attacker.name] = each
            results.append(_interval([control.measure(seed) for seed in range(seeds)]))
    finally:
        registry.FOREIGN[attacker.name] = attacker
    return ControlResult(attacker.name, control.what, control.chance, *results)


class _Shuffled:
    """The scores of an attacker, dealt out at random over nodes, or over the candidates of each step."""

    def __init__(self, attacker: Attacker[Any]) -> None:
        self._attacker, self._rng = attacker, np.random.default_rng(stream(0, "shuffled", attacker.name))

    def __call__(self, observed: Any) -> NDArray[np.float64]:
        scores = np.asarray(self._attacker.score(observed), np.float64)
        if isinstance(observed, StreamObservations):
            return self._rng.permuted(scores, axis=-1)
        return self._rng.permutation(scores, axis=-1)


def _control_of(attacker: Attacker[Any]) -> _Control:
    name, role, metric = attacker.name, attacker.role, "auc"
    params: RunParams
    if attacker.observes is StreamObservations:
        params = FoilGuesses(foil="noise", fakes=3, streams=4, length=60, guessers=(name,))
        return _Control(partial(_success, params, name, "identified"), 0.25, "true values found among noise")
    if attacker.observes is CaptureObservations:
        what = f"AUC on the {role} of a mesh whose messages leave at once"
        return _Control(partial(_success_on_wires, attacker), 0.5, what, by_machines=True)
    if attacker.observes is TreeObservations:
        params = TreeAttacks(tree="paper", nodes=100, insiders=0.2, publications=20, steps=(20,), attacks=(name,))
        what = f"AUC on the {role} of the paper's trees"
    elif attacker.observes is ServerObservations:
        params = RelayAttacks(relay="paper", topics=6, nodes=100, steps=(8,), churn=0.2, attacks=(name,))
        what = f"AUC on the {role} of the paper's relay"
    else:
        inside = 0.2 if attacker.observes is CoalitionObservations else 0.0
        params = MeshEpochs(nodes=150, ratio=0.2, insiders=inside, steps=(10,), attacks=(name,))
        what = f"AUC on the {role} of a mesh without defence"
        metric = "rank" if role == PUBLISHER else "auc"
    return _Control(partial(_success, params, name, metric), 0.5, what)


def _success(params: RunParams, attack: str, metric: str, seed: int) -> float:
    found = {one.metric: one.value for one in run_by("kernel", params, seed, None) if one.attack == attack}
    if metric == "rank":
        return 1 - (found["rank"] - 1) / (1 / found["base"] - 1)
    return found[metric]


def _success_on_wires(attacker: Attacker[Any], seed: int) -> float:
    capture, roles = _take_capture(seed)
    guesses = guess_from_captures(capture.tables, [attacker.name])
    of = "" if attacker.role == SUBSCRIBER else f"_{attacker.role}"
    found = {one.metric: one.value for one in measure_capture_guesses(guesses, roles)}
    return found[f"auc{of}"]


@lru_cache(maxsize=20)
def _take_capture(seed: int) -> tuple[WireCapture, CaptureRoles]:
    capture, roles, _ = take_capture(MeshWires(wire="prompt", nodes=24, ratio=0.3, publications=8), seed)
    return capture, roles


def _interval(values: list[float]) -> tuple[float, float, float]:
    mean, error = float(np.mean(values)), float(np.std(values, ddof=1)) / len(values) ** 0.5
    return mean, mean - 1.96 * error, mean + 1.96 * error


SEEDS: Final = 20
_FAIR: Final = 0.05
"""A null control this near to chance is fair, whatever its interval."""
