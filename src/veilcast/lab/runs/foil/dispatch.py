"""Runs of foiling: which of them is meant follows from what is asked and of what kind the truth is.

Nothing but sums leaves a run, so a million streams are swept in portions and never lie anywhere as a whole. Every draw
has a stream of its own under the run's seed: makers of fakes are held against one another on the same truth.
"""

from __future__ import annotations

from pathlib import Path

from veilcast.lab.experiment.params import Measure, Params
from veilcast.lab.runs.foil import categories, game, guesses, overhead, pairs, pedigrees


def run(params: Params, seed: int, data: Path | None = None) -> list[Measure]:
    params.heed("runs of foiling", "foil")
    match params.ask:
        case "overhead":
            return overhead.run(params, seed, data)
        case "pedigree":
            return pedigrees.run(params, seed)
        case "game":
            return game.run(params, seed, data)
        case "guesses" if params.truth == "codes":
            return categories.run(params, seed)
        case "guesses" if params.truth == "pairs":
            return pairs.run(params, seed)
        case _:
            return guesses.run(params, seed, data)
