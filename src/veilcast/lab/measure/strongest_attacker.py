"""The strongest of several attackers, without selection bias.

The largest of several measured means is too large, more so with more attackers and fewer streams: even if all only
guess, one of them guessed best. So the attacker is chosen on one half of the streams and measured on the other half,
and the other way round. The mean of both is what an attacker reaches that must choose beforehand. It stands beside the
plain maximum, which is the number to keep below a bound to be on the safe side.

Streams that are pieces of one series are not independent: neighbours share their steps. So halves consist of whole
blocks of neighbours, and intervals come from drawing whole blocks (Künsch 1989; here circular, Politis and Romano 1992,
so that every stream is drawn equally often). A block should be longer than neighbours are alike: a day.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from veilcast.errors import ConfigError

Numbers: TypeAlias = NDArray[np.float64]


class Interval(NamedTuple):
    value: float
    low: float
    high: float

    def holds(self, value: float) -> bool:
        return self.low <= value <= self.high


class Strongest(NamedTuple):
    name: str
    """Attacker with the largest mean."""
    largest: Interval
    """Its mean, and the interval of the largest mean of any attacker when streams are drawn again."""
    corrected: float
    """Mean of an attacker that was chosen on other streams than those it is measured on."""


def find_strongest(hits: Mapping[str, Numbers], block: int, seed: int, *, draws: int = 1000) -> Strongest:
    """`hits` has, for each attacker, how often it was right on each stream, in time order; `block` streams go together.

    The interval is centred: the mean excess of the largest redrawn mean over the largest mean is luck, and is
    subtracted.
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
    return Strongest(
        names[chosen], Interval(float(means[chosen]), float(low), float(high)), _cross_validate(table, half)
    )


def block_interval(values: Numbers, block: int, seed: int, *, draws: int = 1000) -> Interval:
    """The mean of values in time order, and its interval when whole blocks are drawn again."""
    if values.ndim != 1 or not 1 <= block <= len(values):
        raise ConfigError(f"a block is of 1 to {len(values)} values")
    means = [values[drawn].mean() for drawn in _blocks(len(values), block, seed, draws)]
    low, high = np.quantile(means, [_MISS / 2, 1 - _MISS / 2])
    return Interval(float(values.mean()), float(low), float(high))


def _cross_validate(table: Numbers, half: NDArray[np.bool_]) -> float:
    """Chosen on one half and measured on the other, both ways; with one block there is no other half."""
    if half.all():
        return float(table.mean(axis=1).max())
    return float(np.mean([_measure_other_half(table[:, side], table[:, ~side]) for side in (half, ~half)]))


def _measure_other_half(chosen_on: Numbers, measured_on: Numbers) -> float:
    return float(measured_on[chosen_on.mean(axis=1).argmax()].mean())


def _blocks(streams: int, block: int, seed: int, draws: int) -> NDArray[np.int64]:
    """Array [draws, streams]: the drawn streams, in whole blocks around the circle."""
    rng = np.random.default_rng(seed)
    starts = rng.integers(streams, size=(draws, -(-streams // block)))
    drawn = (starts[:, :, None] + np.arange(block)) % streams
    return drawn.reshape(draws, -1)[:, :streams]


_MISS: Final = 0.05
