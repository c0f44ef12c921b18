"""Moran branching: trajectories that die and divide, for values that become public after a while.

Pure. An adversary that learns the true value after M steps knows from then on which trajectory it was, and can follow
it. So lineages branch, as in Moran's model of a population: at an event a parent is copied over a victim, and from
there the two move independently. The truth of M steps ago then says little about today if its descendants are few.
Nothing older than M can stay hidden, so nothing is lost by it.

The truth cannot die, and this must not show.

1. Say that the label "true" is on one of n slots with equal probability, and an event (parent i, victim j) is seen. The
   label was not on j.
2. If the event is w times as likely with the label on i as with the label on a bystander, then i has w shares and each
   bystander one.
3. The label is on the parent or on its child with equal probability, so each of the two has w / 2. All n are equal
   again exactly for w = 2.
4. A label on a bystander makes this event as likely as 1/(n-1) 1/(n-2) times the probability that a fake is the parent.
   So the truth must be the parent with probability 2/n.

Drawing the parent uniformly, 1/n, is the `naive` control: lineages that never branched are then true too often.

The events of a step precede its moves, so that a copy has moved away when it is first seen. Their rate, lam per step,
is 2 n (n - 1) / M by default: within M steps a lineage is parent or victim many times.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Final, Generic

import numpy as np

from veilcast.errors import ConfigError
from veilcast.foil.generators.movers import Memory
from veilcast.foil.generators.trajectory import Lineages, Trajectories
from veilcast.foil.random_source import FloatArray, IntArray, RandomSource, draw_integers


@dataclass(frozen=True, eq=False)
class MoranTrajectories(Generic[Memory]):
    lineages: Trajectories[Memory]
    rate: float
    """Expected events in one step."""
    naive: bool = False

    def __post_init__(self) -> None:
        if not 0 <= self.rate <= RATE_MAX:
            raise ConfigError(f"there are 0 to {RATE_MAX} branchings in a step")
        if self.naive and self.n < 3:
            raise ConfigError("with one fake there is no other parent than the truth")

    @property
    def n(self) -> int:
        return self.lineages.n

    def begin(self, streams: int, rng: RandomSource) -> Lineages[Memory]:
        return self.lineages.begin(streams, rng)

    def next(
        self, state: Lineages[Memory], values: FloatArray, rng: RandomSource
    ) -> tuple[Lineages[Memory], FloatArray, IntArray]:
        return self.lineages.next(self._branch(state, rng), values, rng)

    def _branch(self, state: Lineages[Memory], rng: RandomSource) -> Lineages[Memory]:
        if state.values is None:
            return state
        values, position, memory = state.values.copy(), state.position.copy(), state.memory
        origin = np.tile(np.arange(self.n), (len(position), 1))
        events = draw_poisson(self.rate, (len(position),), rng)
        for event in range(int(events.max(initial=0))):
            rows = np.flatnonzero(events > event)
            parent, victim, position[rows] = draw_branching(position[rows], self.n, rng, naive=self.naive)
            values[rows, victim] = values[rows, parent]
            origin[rows, victim] = origin[rows, parent]
            memory = self.lineages.mover.inherit(memory, rows, parent, victim)
        return replace(state, values=values, position=position, memory=memory, origin=origin)


def branching_rate(n: int, delay: int) -> float:
    """The rate for values that become public after this many steps."""
    if delay < 1:
        raise ConfigError("a delay has at least 1 step")
    return 2 * n * (n - 1) / delay


def draw_branching(
    position: IntArray, n: int, rng: RandomSource, *, naive: bool = False
) -> tuple[IntArray, IntArray, IntArray]:
    """One event in each stream: parents, victims, and the slot of the truth afterwards."""
    size = position.shape
    by_truth = rng.random(size) < (1 if naive else 2) / n
    parent = np.where(by_truth, position, _other(position, n, rng))
    first, second = np.minimum(parent, position), np.maximum(parent, position)
    third = draw_integers(rng, max(n - 2, 1), size)
    third += third >= first
    third += third >= second
    victim = np.where(by_truth, _other(position, n, rng), third)
    moves = by_truth & (rng.random(size) < 0.5)
    return parent, victim, np.where(moves, victim, position)


def draw_poisson(rate: float, size: tuple[int, ...], rng: RandomSource) -> IntArray:
    """By the cumulative probabilities; the probability beyond the table is below the precision of a double."""
    counts = np.arange(1, int(rate + 12 * math.sqrt(rate)) + 24)
    logs = np.concatenate([[0.0], np.cumsum(np.log(rate / counts))]) - rate if rate else np.zeros(1)
    return np.searchsorted(np.cumsum(np.exp(logs)), rng.random(size), side="right")


def _other(position: IntArray, n: int, rng: RandomSource) -> IntArray:
    return (position + 1 + draw_integers(rng, n - 1, position.shape)) % n


RATE_MAX: Final = 10_000.0
