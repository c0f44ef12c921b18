"""Runs of foiling: which of them is meant follows from what is asked and of what kind the truth is.

Nothing but sums leaves a run, so a million streams are swept in portions and never lie anywhere as a whole. Every draw
has a stream of its own under the run's seed: makers of fakes are held against one another on the same truth.
"""

from __future__ import annotations

from pathlib import Path

from veilcast.lab.sweep import foil_codes, foil_game, foil_guesses, foil_overhead, foil_pairs, foil_pedigrees
from veilcast.lab.sweep.params import Measure, Params


def run(params: Params, seed: int, data: Path | None = None) -> list[Measure]:
    params.heed("runs of foiling", "foil")
    match params.ask:
        case "overhead":
            return foil_overhead.run(params, seed, data)
        case "pedigree":
            return foil_pedigrees.run(params, seed)
        case "game":
            return foil_game.run(params, seed, data)
        case "guesses" if params.truth == "codes":
            return foil_codes.run(params, seed)
        case "guesses" if params.truth == "pairs":
            return foil_pairs.run(params, seed)
        case _:
            return foil_guesses.run(params, seed, data)
