"""A trained attacker: it foils the past itself and learns how the truth stands out.

The generator and the past of a price are public; only the randomness of the day is not. So the attacker runs the
generator on the past, where the truth is known, and fits what tells the truth from its fakes. Some forty numbers
describe each slot's path: how far it went and how restlessly, whether moves continue or turn back at several lags, what
happens at the edges of blocks, how often it returns to the same value or stands at a round one. The mean over the slots
is subtracted from each number, because only the comparison counts. The true slot follows a conditional logit (McFadden
1974): the log-odds of a slot are a weighted sum of these numbers. The weights maximise the likelihood with a penalty on
their squares, because days are few and numbers many.
"""

from __future__ import annotations

from itertools import chain
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from veilcast.errors import ConfigError
from veilcast.lab.attack.stream.many_steps import normalise_logs
from veilcast.lab.attack.stream.model import Candidates, Numbers, Posterior, StreamModel, require_known


class FittedLogit(NamedTuple):
    weights: Numbers


def fit_logit(candidates: Candidates, position: NDArray[np.int64], penalty: float = 10.0) -> FittedLogit:
    """Fit to streams whose truth stays in one slot; `position` [streams] is that slot."""
    told = extract_path_features(candidates)
    rows = np.arange(len(told))
    if position.shape != rows.shape:
        raise ConfigError("each stream of the training has a slot where its truth is")
    scale = told.std(axis=(0, 1))
    scaled = told / np.where(scale > 0, scale, 1)
    weights = np.zeros(told.shape[2])
    for _ in range(_ROUNDS):
        shares = normalise_logs((scaled @ weights)[:, None, :])[:, 0]
        mean = np.einsum("sif,si->sf", scaled, shares)
        slope = (scaled[rows, position] - mean).sum(axis=0) - penalty * weights
        away = (scaled - mean[:, None, :]) * np.sqrt(shares)[:, :, None]
        curvature = np.einsum("sif,sig->fg", away, away) + penalty * np.eye(len(weights))
        step = np.linalg.solve(curvature, slope)
        weights += step / max(1.0, float(np.abs(step).max()))
        if np.abs(step).max() < _SETTLED:
            break
    return FittedLogit(weights / np.where(scale > 0, scale, 1))


def score_trained(candidates: Candidates, model: StreamModel) -> Posterior:
    found = require_known(model.fitted)
    if not isinstance(found, FittedLogit):
        raise ConfigError("a trained attacker brings what it was trained to")
    return np.repeat(
        normalise_logs((extract_path_features(candidates) @ found.weights)[:, None, :]), candidates.shape[1], axis=1
    )


def extract_path_features(candidates: Candidates) -> Numbers:
    """Array [streams, n, features]."""
    if candidates.shape[1] < STEPS_MIN:
        raise ConfigError(f"a trained attacker looks at {STEPS_MIN} steps or more")
    moves = np.diff(candidates, axis=1)
    size = np.sqrt((moves**2).mean(axis=(1, 2), keepdims=True))
    size[size == 0] = 1
    parts = chain(_reach(candidates, moves / size, size), _turning(moves / size), _places(candidates))
    told = np.stack(list(parts), axis=2)
    return np.asarray(told - told.mean(axis=1, keepdims=True), np.float64)


def _reach(values: Candidates, moves: Numbers, size: Numbers) -> list[Numbers]:
    """Distance and restlessness of a path; moves are in units of their size."""
    root, far = np.sqrt(values.shape[1]), np.abs(moves)
    end = (values[:, -1] - values[:, 0]) / size[:, 0] / root
    apart = np.abs(values - values.mean(axis=2, keepdims=True)) / size
    return [
        end,
        end**2,
        apart.mean(axis=1) / root,
        np.ptp(values, axis=1) / size[:, 0] / root,
        np.log((moves**2).mean(axis=1) + _LEAST),
        np.log(far.mean(axis=1) + _LEAST),
        np.log(far.max(axis=1) + _LEAST),
        (moves == 0).mean(axis=1) * root,
        (moves**3).sum(axis=1) / root,
        np.sign(moves).sum(axis=1) / root,
        (far[:, 1:] * far[:, :-1]).sum(axis=1) / root,
        (moves[:, :-1] * far[:, 1:]).sum(axis=1) / root,
        (far[:, :-1] * moves[:, 1:]).sum(axis=1) / root,
    ]


def _turning(moves: Numbers) -> list[Numbers]:
    """Whether moves continue, at several lags and from one block of moves to the next."""
    streams, steps, n = moves.shape
    root, signs, told = np.sqrt(steps), np.sign(moves), []
    for lag in _LAGS:
        told.append((moves[:, lag:] * moves[:, :-lag]).sum(axis=1) / root)
        told.append((signs[:, lag:] * signs[:, :-lag]).sum(axis=1) / root)
    for block in _BLOCKS:
        many = steps // block
        sums = moves[:, : many * block].reshape(streams, many, block, n).sum(axis=2) / np.sqrt(block)
        told.append((sums**2).sum(axis=1) / np.sqrt(max(many, 1)))
        told.append((sums[:, 1:] * sums[:, :-1]).sum(axis=1) / np.sqrt(max(many, 1)))
        edges = np.arange(block, steps, block)
        told.append((moves[:, edges] * moves[:, edges - 1]).sum(axis=1) / np.sqrt(max(many, 1)))
    return told


def _places(values: Candidates) -> list[Numbers]:
    """Whether the path returns to where it was, and how often it stands at multiples of round numbers."""
    root = np.sqrt(values.shape[1])
    back = [(values[:, lag:] == values[:, :-lag]).sum(axis=1) / root for lag in (2, 3)]
    different = (np.diff(np.sort(values, axis=1), axis=1) != 0).sum(axis=1) / root
    return [*back, different, *((values % part == 0).sum(axis=1) / root for part in _PARTS)]


STEPS_MIN: Final = 12
_LAGS: Final = (1, 2, 3, 4, 5, 8, 10)
_BLOCKS: Final = (5, 10, 20)
_PARTS: Final = (5, 10, 25, 50, 100)
"""Round numbers, in the unit that candidates are counted in."""
_ROUNDS: Final = 30
_SETTLED: Final = 1e-6
_LEAST: Final = 1e-9
