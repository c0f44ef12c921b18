"""Hidden Markov chains over candidates: the truth is in one of n places at each step, and moves by a distribution.

A state is the place of the truth. The probability of a transition from place i to place j is that of the difference of
their values under the distribution of moves. The emission is the probability of the other candidates, given that one is
true. If the others are the truth plus noise of deviation tau, its logarithm is minus the sum of squared distances to
the truth, over 2 tau^2. If they are not around the truth, it is the same for all.

`filter_forward` uses earlier steps, `smooth` also later ones (forward-backward), `best_path` is the most probable path
(Viterbi). All work with logarithms, O(steps n^2) for each stream: a far place is not impossible, but its logarithm is
far below.
"""

from __future__ import annotations

from math import exp, inf, log
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from veilcast.lab.models.numba_cache import jit

Numbers: TypeAlias = NDArray[np.float64]


@jit
def filter_forward(candidates: Numbers, scale: float, mean: float, freedom: float, noise: float) -> Numbers:
    """[streams, steps, n]: the probability of each place, given all steps up to its own. `noise` 0 means no
    emission."""
    streams, steps, n = candidates.shape
    result = np.empty(candidates.shape)
    emissions, laws, weights = np.empty((steps, n)), np.empty((steps, n, n)), np.empty((steps, n, n))
    for stream in range(streams):
        _weigh(candidates[stream], scale, mean, freedom, noise, emissions, laws, weights)
        _go_forward(emissions, laws, weights, result[stream])
        for step in range(steps):
            _to_shares(result[stream, step])
    return result


@jit
def smooth(candidates: Numbers, scale: float, mean: float, freedom: float, noise: float) -> Numbers:
    """The same, given the whole stream."""
    streams, steps, n = candidates.shape
    result = np.empty(candidates.shape)
    emissions, laws, weights = np.empty((steps, n)), np.empty((steps, n, n)), np.empty((steps, n, n))
    ahead, later, shares = np.empty(n), np.empty(n), np.empty(n)
    for stream in range(streams):
        logs = result[stream]
        _weigh(candidates[stream], scale, mean, freedom, noise, emissions, laws, weights)
        _go_forward(emissions, laws, weights, logs)
        ahead[:] = 0.0
        for step in range(steps - 1, -1, -1):
            if step < steps - 1:
                later[:] = ahead + emissions[step + 1]
                _centre(later, shares)
                for i in range(n):
                    ahead[i] = _log_sum(later, shares, laws[step + 1, i], weights[step + 1, i])
                _centre(ahead, shares)
            logs[step] += ahead
            _to_shares(logs[step])
    return result


@jit
def best_path(candidates: Numbers, scale: float, mean: float, freedom: float, noise: float) -> NDArray[np.int64]:
    """[streams, steps]: the places of the most probable path."""
    streams, steps, n = candidates.shape
    path = np.empty((streams, steps), np.int64)
    came = np.empty((steps, n), np.int64)
    score, after, emission = np.empty(n), np.empty(n), np.empty(n)
    for stream in range(streams):
        values = candidates[stream]
        _emissions(values[0], noise, score)
        for step in range(1, steps):
            _emissions(values[step], noise, emission)
            for j in range(n):
                best, at = -inf, 0
                for i in range(n):
                    reached = score[i] + _log_law(values[step, j] - values[step - 1, i], scale, mean, freedom)
                    if reached > best:
                        best, at = reached, i
                after[j], came[step, j] = best + emission[j], at
            score[:] = after - after.max()
        path[stream, steps - 1] = np.argmax(score)
        for step in range(steps - 1, 0, -1):
            path[stream, step - 1] = came[step, path[stream, step]]
    return path


@jit
def trace_branches(
    candidates: Numbers, told: Numbers, delay: int, scale: float, mean: float, freedom: float, branching: float
) -> Numbers:
    """[streams, steps, n]: the probability of each slot, given the truth of `delay` steps ago.

    Slots are followed: each continues itself, or with probability `branching` another one. The origin of a slot is
    weighted by the distribution of moves, and normalised over all possible origins.
    """
    streams, steps, n = candidates.shape
    result = np.full(candidates.shape, 1.0 / n)
    here, after = np.empty(n), np.empty(n)
    origins = np.empty((steps, n, n))
    for stream in range(streams):
        values = candidates[stream]
        for step in range(1, steps):
            for j in range(n):
                _origins(values[step - 1], values[step, j], j, scale, mean, freedom, branching, origins[step, j])
        for step in range(delay, steps):
            _at_value(values[step - delay], told[stream, step - delay], here)
            for later in range(step - delay + 1, step + 1):
                for j in range(n):
                    after[j] = np.sum(here * origins[later, j])
                total = after.sum()
                if total <= 0:
                    after[:] = 1.0
                    total = n
                here[:] = after / total
            result[stream, step] = here
    return result


@jit
def _origins(
    before: Numbers,
    value: float,
    slot: int,
    scale: float,
    mean: float,
    freedom: float,
    branching: float,
    origins: Numbers,
) -> None:
    """The probability that this slot came from each slot before."""
    n = before.size
    for i in range(n):
        chance = 1.0 - branching if i == slot else branching / (n - 1)
        origins[i] = log(chance) + _log_law(value - before[i], scale, mean, freedom) if chance > 0 else -inf
    _to_shares(origins)


@jit
def _at_value(values: Numbers, told: float, here: Numbers) -> None:
    """Equal probabilities for the candidates with the given value; if rounding left none, for the nearest."""
    distance = np.abs(values - told)
    least = distance.min()
    here[:] = 0.0
    for i in range(values.size):
        if distance[i] <= least:
            here[i] = 1.0
    here[:] /= here.sum()


@jit
def _weigh(
    values: Numbers,
    scale: float,
    mean: float,
    freedom: float,
    noise: float,
    emissions: Numbers,
    laws: Numbers,
    weights: Numbers,
) -> None:
    """For each step, the emissions; and from each place before to each place, the logarithm of the move's density, and
    its exponential.

    The largest logarithm of a step is 0: only differences count, and an exponential is taken once for both directions.
    """
    steps, n = values.shape
    for step in range(steps):
        _emissions(values[step], noise, emissions[step])
        if step == 0:
            continue
        most = -inf
        for i in range(n):
            for j in range(n):
                laws[step, i, j] = _log_law(values[step, j] - values[step - 1, i], scale, mean, freedom)
                most = max(most, laws[step, i, j])
        for i in range(n):
            for j in range(n):
                laws[step, i, j] -= most
                weights[step, i, j] = exp(laws[step, i, j]) if laws[step, i, j] > -_VANISHED else 0.0


@jit
def _go_forward(emissions: Numbers, laws: Numbers, weights: Numbers, logs: Numbers) -> None:
    steps, n = emissions.shape
    shares = np.empty(n)
    logs[0] = emissions[0]
    _centre(logs[0], shares)
    for step in range(1, steps):
        for j in range(n):
            logs[step, j] = emissions[step, j] + _log_sum(logs[step - 1], shares, laws[step, :, j], weights[step, :, j])
        _centre(logs[step], shares)


@jit
def _centre(logs: Numbers, shares: Numbers) -> None:
    """Shift the largest logarithm to 0, because logarithms would fall without end; and take exponentials."""
    logs -= logs.max()
    for i in range(logs.size):
        shares[i] = exp(logs[i])


@jit
def _log_sum(logs: Numbers, shares: Numbers, laws: Numbers, weights: Numbers) -> float:
    """The logarithm of a sum of products: by exponentials if the sum has not vanished, otherwise with the largest term
    taken out."""
    total = 0.0
    for i in range(logs.size):
        total += shares[i] * weights[i]
    if total > _TINY:
        return log(total)
    total, most = 0.0, -inf
    for i in range(logs.size):
        most = max(most, logs[i] + laws[i])
    for i in range(logs.size):
        total += exp(logs[i] + laws[i] - most)
    return most + log(total)


@jit
def _emissions(values: Numbers, noise: float, logs: Numbers) -> None:
    n = values.size
    for i in range(n):
        logs[i] = 0.0
        if noise > 0:
            for j in range(n):
                logs[i] -= (values[j] - values[i]) ** 2
            logs[i] /= 2.0 * noise * noise


@jit
def _log_law(move: float, scale: float, mean: float, freedom: float) -> float:
    """The log-density of a move, without constants."""
    far = (move - mean) / scale
    if freedom == inf:
        return -0.5 * far * far
    return -0.5 * (freedom + 1.0) * log(1.0 + far * far / freedom)


@jit
def _to_shares(logs: Numbers) -> None:
    most = logs.max()
    for i in range(logs.size):
        logs[i] = exp(logs[i] - most)
    logs[:] /= logs.sum()


_VANISHED: Final = 700.0
"""The exponential of a number this far below 0 is no longer a normal double."""
_TINY: Final = 1e-250
