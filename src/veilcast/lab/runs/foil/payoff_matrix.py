"""The game between generators of fakes and attackers (P3, section VII), on the same truth for all.

A run fills the matrix of success rates, attackers against generators, and solves the game: its value if both sides play
optimally, and the probabilities of their choices. For each generator it also tells whether the generator is on the
frontier of the best attacker's success and the deviation of a guess. The number of fakes is an axis.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np

from veilcast.lab.experiment.foil_params import FoilGame, FoilGuesses
from veilcast.lab.experiment.params import Measure
from veilcast.lab.measure.game import find_frontier, solve_game
from veilcast.lab.runs.foil import guesses


def run(params: FoilGame, seed: int, data: Path | None) -> list[Measure]:
    reached: dict[str, dict[str, float]] = {}
    off: dict[str, float] = {}
    for name, given in GENERATOR_CHOICES.items():
        found = guesses.run(FoilGuesses(**(msgspec.structs.asdict(params) | given)), seed, data)
        reached[name] = {one.attack: one.value for one in found if one.metric == "identified"}
        del reached[name]["best"]
        off[name] = next(one.value for one in found if (one.attack, one.metric) == ("", "deviation"))
    attacks = sorted(set[str]().union(*reached.values()))
    # An attacker that does not apply can still guess.
    matrix = np.array(
        [[reached[name].get(attack, reached[name]["uniform"]) for attack in attacks] for name in GENERATOR_CHOICES]
    )
    solution, worst = solve_game(matrix), matrix.max(axis=1)
    kept = find_frontier(np.column_stack([worst, [-off[name] for name in GENERATOR_CHOICES]]))
    measures = [Measure("", "value", 0, solution.value), Measure("", "chance", 0, 1 / (params.fakes + 1))]
    for row, name in enumerate(GENERATOR_CHOICES):
        told = {
            "weight": float(solution.foiler[row]),
            "worst": float(worst[row]),
            "deviation": off[name],
            "frontier": float(kept[row]),
        }
        measures += [Measure(f"against {name}", metric, 0, value) for metric, value in told.items()]
    weights = zip(attacks, solution.attacker, strict=True)
    return [*measures, *(Measure(attack, "weight", 0, float(weight)) for attack, weight in weights)]


GENERATOR_CHOICES: Final[dict[str, dict[str, Any]]] = {
    "noise": {"foil": "noise"},
    "large noise": {"foil": "noise", "noise": 10.0},
    "window": {"foil": "window"},
    "gaussian": {"foil": "gaussian"},
    "student": {"foil": "student"},
    "history": {"foil": "history"},
    "sign-flip": {"foil": "sign-flip"},
    "leaning": {"foil": "leaning"},
    "leaning blocks": {"foil": "leaning", "block": 20},
}
"""The choices of the foiling side, all with the same number of fakes."""
