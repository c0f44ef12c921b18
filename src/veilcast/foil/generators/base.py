"""The interface of all generators: from a state, true values and randomness to candidates and a new state.

Pure. A step also returns the position of the truth. One step of many streams at once; the streams are the leading axis,
and a live publisher has one. The lab's long form, `foil_series`, calls the same step repeatedly, so there is one
implementation.

There are two orders of candidates, for two observers. `next` returns them in **slots**: if a generator has lineages, a
slot continues the value that it had a step before; otherwise the truth is in a random slot. This is the view of an
adversary that can follow each lineage, the worst case, and all generators are meant to withstand it. A broker sees
less: P3 sends each composite set in a random order. `place_truth` makes that order, with the truth where a shared key
wants it and the fakes in a fresh order each time. A key that placed only the truth would let an observer follow the
fakes from step to step, and the candidate that cannot be followed would be true.
"""

from __future__ import annotations

from typing import Any, Final, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from veilcast.errors import LocalError
from veilcast.foil.random_source import IntArray, RandomSource, draw_integers

State = TypeVar("State")
Kind = TypeVar("Kind", bound=np.generic)


class Generator(Protocol[State, Kind]):
    """For one attribute, or for events of several attributes, which are then one more axis at the end.

    The element type is float64 for numbers and int64 for codes of categories. A state is a value: `next` makes a new
    one.
    """

    @property
    def n(self) -> int:
        """Number of candidates for each value: the truth and its fakes."""

    def begin(self, streams: int, rng: RandomSource) -> State: ...

    def next(
        self, state: State, values: npt.NDArray[Kind], rng: RandomSource
    ) -> tuple[State, npt.NDArray[Kind], IntArray]:
        """From the values of [streams] to the candidates of [streams, n], and the slot of the truth in each."""


def foil_series(
    generator: Generator[State, Kind], values: npt.NDArray[Kind], rng: RandomSource
) -> tuple[npt.NDArray[Kind], IntArray]:
    """Whole series: values of [streams, steps] to candidates of [streams, steps, n], and positions."""
    streams, steps = values.shape[:2]
    candidates = np.empty((streams, steps, generator.n, *values.shape[2:]), dtype=values.dtype)
    positions = np.empty((streams, steps), dtype=np.int64)
    state = generator.begin(streams, rng)
    for step in range(steps):
        state, candidates[:, step], positions[:, step] = generator.next(state, values[:, step], rng)
    return candidates, positions


def place_truth(
    candidates: npt.NDArray[Kind], position: IntArray, places: IntArray, rng: RandomSource
) -> npt.NDArray[Kind]:
    """The candidates of [streams, n] in a new order: the truth at `places`, the fakes in random order elsewhere."""
    streams, n = candidates.shape[:2]
    if places.shape != (streams,) or not ((places >= 0) & (places < n)).all():
        raise LocalError(f"each stream has a place for its truth, from 0 to {n - 1}")
    order = np.argsort(rng.random((streams, n)), axis=1)
    drawn = np.argmax(order == position[:, None], axis=1)
    return candidates[np.arange(streams)[:, None], swap_candidates(order, drawn, places)]


def swap_candidates(candidates: npt.NDArray[Kind], position: IntArray, places: IntArray) -> npt.NDArray[Kind]:
    """Exchange the candidates at `position` and `places`."""
    rows = np.arange(len(candidates))
    result = candidates.copy()
    result[rows, places] = candidates[rows, position]
    result[rows, position] = candidates[rows, places]
    return result


def insert_truth(
    fakes: npt.NDArray[Kind], values: npt.NDArray[Kind], rng: RandomSource
) -> tuple[npt.NDArray[Kind], IntArray]:
    """The truth in a random slot, replacing one of n identically distributed fakes."""
    position = draw_integers(rng, fakes.shape[1], (len(values),))
    fakes[np.arange(len(values)), position] = values
    return fakes, position


def check_fakes(k: int) -> None:
    if not 1 <= k <= FAKES_MAX:
        raise LocalError(f"a value has 1 to {FAKES_MAX} fakes")


def check_streams(values: npt.NDArray[Any], streams: int) -> None:
    if values.shape[:1] != (streams,):
        raise LocalError(f"this state is of {streams} streams, and there are values of {len(values)}")


FAKES_MAX: Final = 1023
"""Each fake is a message; the paper has at most ten."""
