"""The strongest of several attackers, honestly: who is chosen for having been lucky is not so lucky again.

The largest of several measured means is too large, the more so the more attackers there are and the fewer streams: even
if all only guess, one of them guessed best. So the attacker is chosen on one half of the streams and measured on the
other, and the other way round; the mean of both is what somebody reaches who has to choose before. It stands beside the
plain largest, which is what is to stay below a bound if one wants to be on the safe side.

Streams that are pieces of one series are not independent: neighbours share their steps. Halves are therefore made of
whole blocks of neighbours, and intervals come from drawing whole blocks (Künsch 1989; here they are circular, Politis
and Romano 1992, so that no stream is drawn more seldom than another). A block should be longer than neighbours are
alike: a day.


Intervals by the bootstrap over runs (Efron 1979): what else might have come out of other runs of the same kind?

Nodes of one run are not independent: they share an overlay, a publisher and an attacker's luck. Runs are. So runs are
drawn, with replacement, as many as there are, and the statistic is taken of each such draw; of many draws the middle 95
of 100 are the interval. It holds for any statistic of whole runs, as an AUC of all their nodes taken together, where
Student's interval of a mean (`summary`) does not."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from veilcast.errors import ConfigError

Run = TypeVar("Run")


class Interval(NamedTuple):
    value: float
    low: float
    high: float

    def holds(self, value: float) -> bool:
        return self.low <= value <= self.high


def by_run(
    runs: Sequence[Run],
    statistic: Callable[[Sequence[Run]], float],
    seed: int,
    *,
    draws: int = 1000,
    miss: float = 0.05,
) -> Interval:
    """The statistic of all runs, and where it lies but for a share `miss` of the draws.

    Who looks at several attackers, and would be alarmed by any of them, divides `miss` by their number.
    """
    if not runs:
        raise ConfigError("there are no runs to draw from")
    rng = np.random.default_rng(seed)
    chosen = rng.integers(len(runs), size=(draws, len(runs)))
    values = [statistic([runs[one] for one in draw]) for draw in chosen.tolist()]
    low, high = np.quantile(values, [miss / 2, 1 - miss / 2])
    return Interval(statistic(runs), float(low), float(high))


Numbers: TypeAlias = NDArray[np.float64]


class Strongest(NamedTuple):
    name: str
    """Of the attacker with the largest mean."""
    largest: Interval
    """Its mean, and the interval of the largest mean of any attacker when streams are drawn anew."""
    corrected: float
    """What is reached by who must choose on other streams than those it is measured on."""


def find_strongest(hits: Mapping[str, Numbers], block: int, seed: int, *, draws: int = 1000) -> Strongest:
    """Of each attacker how often it was right on each stream, in the order of time; `block` streams go together.

    The interval is centred: what the largest of redrawn means exceeds the largest mean by on the average is luck, and
    is taken off.
    """
    names = list(hits)
    table = np.array([hits[name] for name in names])
    if not names or table.ndim != 2 or not table.size or not np.isfinite(table).all():
        raise ConfigError("each attacker has a number for each stream")
    streams = table.shape[1]
    if not 1 <= block <= streams:
        raise ConfigError(f"a block is of 1 to {streams} streams")
    means = table.mean(axis=1)
    chosen = int(means.argmax())
    tops = np.array([table[:, drawn].mean(axis=1).max() for drawn in _blocks(streams, block, seed, draws)])
    low, high = np.quantile(tops - (tops.mean() - means[chosen]), [_MISS / 2, 1 - _MISS / 2])
    half = (np.arange(streams) // block) % 2 == 0
    return Strongest(names[chosen], Interval(float(means[chosen]), float(low), float(high)), _crossed(table, half))


def block_interval(values: Numbers, block: int, seed: int, *, draws: int = 1000) -> Interval:
    """The mean of values in the order of time, and where it lies when whole blocks are drawn anew."""
    if values.ndim != 1 or not 1 <= block <= len(values):
        raise ConfigError(f"a block is of 1 to {len(values)} values")
    means = [values[drawn].mean() for drawn in _blocks(len(values), block, seed, draws)]
    low, high = np.quantile(means, [_MISS / 2, 1 - _MISS / 2])
    return Interval(float(values.mean()), float(low), float(high))


def _crossed(table: Numbers, half: NDArray[np.bool_]) -> float:
    """Chosen here and measured there, both ways; with one block there is no other half."""
    if half.all():
        return float(table.mean(axis=1).max())
    return float(np.mean([_measured(table[:, side], table[:, ~side]) for side in (half, ~half)]))


def _measured(chosen_on: Numbers, measured_on: Numbers) -> float:
    return float(measured_on[chosen_on.mean(axis=1).argmax()].mean())


def _blocks(streams: int, block: int, seed: int, draws: int) -> NDArray[np.int64]:
    """Of [draws, streams]: which streams are drawn, whole blocks around the circle, as many streams as there are."""
    rng = np.random.default_rng(seed)
    starts = rng.integers(streams, size=(draws, -(-streams // block)))
    drawn = (starts[:, :, None] + np.arange(block)) % streams
    return drawn.reshape(draws, -1)[:, :streams]


_MISS: Final = 0.05
