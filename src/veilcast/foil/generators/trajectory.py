"""Trajectories: fakes that move on their own, by the law of the truth, from a public start.

Pure. Noise is drawn afresh at each step, and only the truth continues from its last value: an adversary that smooths
over time finds it. Here each fake continues from its own last value. If it moves by the law of the truth, the
candidates are exchangeable as whole paths, and an observation of any number of steps is no better than a guess;
everything depends on the mover. All lineages start at the first value, which thereby becomes public: publish first a
value that is known anyway (yesterday's close).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic

import numpy as np

from veilcast.foil.generators.base import check_fakes, check_streams
from veilcast.foil.generators.movers import Memory, Mover
from veilcast.foil.generators.numeric_domain import UNBOUNDED, NumericDomain
from veilcast.foil.random_source import FloatArray, IntArray, RandomSource, draw_integers


@dataclass(frozen=True, eq=False)
class Lineages(Generic[Memory]):
    position: IntArray
    memory: Memory
    values: FloatArray | None = None
    """[streams, n]: the last published values; None before the first step."""
    origin: IntArray | None = None
    """[streams, n]: the slot of each a step before, where lineages branch."""


@dataclass(frozen=True, eq=False)
class Trajectories(Generic[Memory]):
    k: int
    mover: Mover[Memory]
    domain: NumericDomain = UNBOUNDED

    def __post_init__(self) -> None:
        check_fakes(self.k)

    @property
    def n(self) -> int:
        return self.k + 1

    def begin(self, streams: int, rng: RandomSource) -> Lineages[Memory]:
        """Each truth keeps one slot for ever."""
        return Lineages(draw_integers(rng, self.n, (streams,)), self.mover.begin(streams, self.n, rng))

    def next(
        self, state: Lineages[Memory], values: FloatArray, rng: RandomSource
    ) -> tuple[Lineages[Memory], FloatArray, IntArray]:
        check_streams(values, len(state.position))
        self.domain.check(values)
        if state.values is None:
            memory, candidates = state.memory, np.repeat(values[:, None], self.n, axis=1)
        else:
            rows = np.arange(len(values))
            before = state.values[rows, state.position]
            memory, candidates = self.mover.move(state.memory, state.values, before, values, rng)
            candidates = self.domain.fit(candidates)
            candidates[rows, state.position] = values
        return Lineages(state.position, memory, candidates, state.origin), candidates, state.position
