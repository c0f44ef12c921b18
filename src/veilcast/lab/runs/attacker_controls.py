"""Controls of attackers from outside the package, run before their results count.

- The positive control: a run where attackers of the package succeed. A mesh without defence over ten epochs; streams
  that are foiled by independent noise. The attacker should do better than a guess there: if it does not, what it does
  not find elsewhere says nothing.
- The null control: the same runs, with the scores of nodes, or of the candidates of a step, dealt out at random. This
  is the same as shuffled labels, and gives an AUC of .5, or the share of a guess. If it does not, the result of a run
  does not follow from the attacker's scores, and the attacker is refused.

Both are means over `SEEDS` seeds, with 95 % intervals. The AUC of an attacker on the publisher is the share of other
nodes that it ranks below the publisher.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from veilcast.lab.attack import registry
from veilcast.lab.attack.insider.observations import CoalitionObservations
from veilcast.lab.attack.registry import PUBLISHER, Attacker
from veilcast.lab.attack.stream.model import StreamObservations
from veilcast.lab.experiment.foil_params import FoilGuesses
from veilcast.lab.experiment.mesh_params import MeshEpochs
from veilcast.lab.experiment.params import RunParams
from veilcast.lab.models.rng import stream
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


def run_controls(attacker: Attacker[Any]) -> ControlResult:
    """Both controls of an attacker that is installed. Raises `LocalError` if the attacker fails."""
    params, chance, what = _control_of(attacker)
    shuffled = replace(attacker, score=_Shuffled(attacker))
    results = []
    try:
        for each in (attacker, shuffled):
            registry.FOREIGN[attacker.name] = each
            results.append(_interval([_success(attacker, params, seed) for seed in range(SEEDS)]))
    finally:
        registry.FOREIGN[attacker.name] = attacker
    return ControlResult(attacker.name, what, chance, *results)


class _Shuffled:
    """The scores of an attacker, dealt out at random over nodes, or over the candidates of each step."""

    def __init__(self, attacker: Attacker[Any]) -> None:
        self._attacker, self._rng = attacker, np.random.default_rng(stream(0, "shuffled", attacker.name))

    def __call__(self, observed: Any) -> NDArray[np.float64]:
        scores = np.asarray(self._attacker.score(observed), np.float64)
        if isinstance(observed, StreamObservations):
            return self._rng.permuted(scores, axis=-1)
        return self._rng.permutation(scores, axis=-1)


def _control_of(attacker: Attacker[Any]) -> tuple[RunParams, float, str]:
    if attacker.observes is StreamObservations:
        params = FoilGuesses(foil="noise", fakes=3, streams=4, length=60, guessers=(attacker.name,))
        return params, 0.25, "true values found among noise"
    inside = attacker.observes is CoalitionObservations
    mesh = MeshEpochs(nodes=150, ratio=0.2, insiders=0.2 if inside else 0.0, steps=(10,), attacks=(attacker.name,))
    return mesh, 0.5, f"AUC on the {attacker.role} of a mesh without defence"


def _success(attacker: Attacker[Any], params: RunParams, seed: int) -> float:
    found = {one.metric: one.value for one in run_by("kernel", params, seed, None) if one.attack == attacker.name}
    if attacker.observes is StreamObservations:
        return found["identified"]
    if attacker.role == PUBLISHER:
        return 1 - (found["rank"] - 1) / (1 / found["base"] - 1)
    return found["auc"]


def _interval(values: list[float]) -> tuple[float, float, float]:
    mean, error = float(np.mean(values)), float(np.std(values, ddof=1)) / len(values) ** 0.5
    return mean, mean - 1.96 * error, mean + 1.96 * error


SEEDS: Final = 20
_FAIR: Final = 0.05
"""A null control this near to chance is fair, whatever its interval."""
