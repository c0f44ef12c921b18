"""The game between who makes fakes and who attacks (P3, section VII), on the same truth for all.

A run fills the matrix and solves it: which attacker is right how often against which maker, what comes of it if both
choose as well as they can, and with which probabilities they do. Which makers are on the frontier of how often the best
attacker is right and how far off a guess is, is said of each; the number of fakes is an axis.
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
    # Whoever does not apply can still guess.
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
"""All with as many fakes."""
