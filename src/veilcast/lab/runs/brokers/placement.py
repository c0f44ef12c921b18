"""Where replicas should stand: P4's framework, its variation, and pairs, on random overlays whose brokers fail.

Each broker fails with its own probability. The framework knows how often each broker failed in a number of trials.
Pairs are placed by what that says of the probability, or by the probability itself. The measure is the probability that
every node of a path has an honest majority, as the mean over random paths.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import numpy as np

from veilcast.brokers.operations.placement import (
    OverlayPath,
    estimate_risk,
    greedy_pair_plan,
    soundness,
    three_phase_plan,
    unprotected_paths,
)
from veilcast.brokers.topology import OverlayTree
from veilcast.lab.experiment.broker_params import BrokersPlacement
from veilcast.lab.experiment.params import Measure
from veilcast.lab.models.rng import stream


def run(params: BrokersPlacement, seed: int, data: Path | None = None) -> list[Measure]:
    found = np.mean([_measure_placement(params, seed, number) for number in range(params.overlays)], axis=0)
    return [Measure("", metric, 0, float(value)) for metric, value in zip(("sound", "bare"), found, strict=True)]


def _measure_placement(params: BrokersPlacement, seed: int, number: int) -> tuple[float, float]:
    """The probability that paths are sound, and the share of paths with a node that cannot share keys."""
    # Instances do not depend on the allocation.
    rng = np.random.default_rng(stream(seed, "placement", number))
    paths, risks = _anywhere(params, rng) if params.scattered else _on_a_tree(params, rng)
    failures = {node: int(rng.binomial(_OBSERVED, risk)) for node, risk in risks.items()}
    match params.allocation:
        case "none":
            sizes: dict[str, int] = {}
        case "told pairs":
            sizes = greedy_pair_plan(paths, risks, params.budget).sizes
        case "pairs":
            guessed = {node: estimate_risk(count, _OBSERVED) for node, count in failures.items()}
            sizes = greedy_pair_plan(paths, guessed, params.budget).sizes
        case phases:
            sizes = three_phase_plan(paths, failures, params.budget, once=phases == "once").sizes
    return soundness(paths, sizes, risks), len(unprotected_paths(paths, sizes)) / len(paths)


def _on_a_tree(params: BrokersPlacement, rng: np.random.Generator) -> tuple[list[OverlayPath], dict[str, float]]:
    """Each broker is attached to a random earlier one; paths lead from any broker to any other."""
    names = [str(broker) for broker in range(params.nodes)]
    links = [(names[broker], names[rng.integers(broker)]) for broker in range(1, params.nodes)]
    overlay = OverlayTree.build(dict.fromkeys(names, 1), links)
    ends = [rng.permutation(params.nodes)[:2] for _ in range(params.paths)]
    paths = [OverlayPath(str(at), overlay.path(names[u], names[v])) for at, (u, v) in enumerate(ends)]
    return paths, dict(zip(names, rng.uniform(*_RISKS, params.nodes).tolist(), strict=True))


def _anywhere(params: BrokersPlacement, rng: np.random.Generator) -> tuple[list[OverlayPath], dict[str, float]]:
    """Paths over three to eight random brokers."""
    names = np.arange(params.nodes).astype(str)
    lengths = rng.integers(_SHORTEST, _LONGEST + 1, params.paths)
    paths = [OverlayPath(str(at), tuple(rng.permutation(names)[:many].tolist())) for at, many in enumerate(lengths)]
    return paths, dict(zip(names.tolist(), rng.uniform(0, _RISK_ANYWHERE, params.nodes).tolist(), strict=True))


_OBSERVED: Final = 1_000
_RISKS: Final = (0.01, 0.15)
_RISK_ANYWHERE: Final = 0.2
_SHORTEST: Final = 3
_LONGEST: Final = 8
