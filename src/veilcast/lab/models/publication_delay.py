"""When a publisher's notes leave it, and when readers get them: what waits, for whom, and for how long.

One note is written in each epoch in which its publisher is there. Notes leave at departures, one in each stretch of
`departures` epochs, at an epoch of it that is drawn for each stretch; who cannot leave then, because the publisher or
its successor is away, leaves as soon as both are there. The root then keeps every note for any number of epochs up to
`hold`, each as likely as another, and lets the oldest go first.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from veilcast.lab.models.keyed_draws import DEPARTURES, HOLDS, draw_bits
from veilcast.lab.models.numba_cache import jit
from veilcast.lab.models.rng import to_fraction


@dataclass(frozen=True, eq=False)
class PublicationSchedule:
    """Of E epochs."""

    departed: NDArray[np.int32]
    """E: how many notes left their publisher."""
    delivered: NDArray[np.int32]
    """E: how many came down the mesh."""
    delay: float
    """For how many epochs a note that came down had waited, on the average; 0 if none did."""


def schedule_publications(
    there: NDArray[np.bool_], opened: NDArray[np.bool_], departures: int, hold: int, key: np.uint64
) -> PublicationSchedule:
    """By epoch, whether the publisher was there, and whether its way to the root was."""
    left, read, delay = _schedule(there, opened & there, max(1, departures), hold, key)
    return PublicationSchedule(left, read, float(delay))


@jit
def _schedule(
    there: NDArray[np.bool_], opened: NDArray[np.bool_], departures: int, hold: int, key: np.uint64
) -> tuple[NDArray[np.int32], NDArray[np.int32], float]:
    count = there.size
    left, read = np.zeros(count, np.int32), np.zeros(count, np.int32)
    waiting, due, waited, came = 0, 0, 0, 0
    for epoch in range(count):
        stretch = epoch // departures
        waiting += there[epoch]
        if epoch == stretch * departures + int(to_fraction(draw_bits(key, DEPARTURES, 0, stretch, 0)) * departures):
            due = waiting
        if not opened[epoch]:
            continue
        left[epoch], waiting = due, waiting - due
        for note in range(due):
            until = epoch + int(to_fraction(draw_bits(key, HOLDS, note, epoch, 0)) * (hold + 1))
            if until < count:
                read[until] += 1
        due = 0
    # The oldest goes first: the sum of delays is that of the epochs of reading less that of as many first notes.
    for epoch in range(count):
        waited += epoch * read[epoch]
        came += read[epoch]
    for epoch in range(count):
        if there[epoch] and came > 0:
            waited -= epoch
            came -= 1
    total = read.sum()
    return left, read, waited / total if total > 0 else 0.0
