"""When a publisher's notifications leave it, and when readers receive them.

One notification is written in each epoch in which its publisher is present, or in some. Notifications leave at
departures: one in each stretch of `departures` epochs, at an epoch drawn for each stretch. If the publisher or its
successor is away then, they leave as soon as both are present. The root then keeps every notification for a uniform
number of epochs up to `hold`, and releases the oldest first. Where notifications leave in parcels, their publisher
draws the number in the root's place, when it writes them, and none is released before an earlier one.
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
    """The schedule of E epochs."""

    departed: NDArray[np.int32]
    """E: number of notifications that left their publisher."""
    delivered: NDArray[np.int32]
    """E: number of notifications that came down the mesh."""
    delay: float
    """Mean epochs that a delivered notification had waited; 0 if there was none."""


def schedule_publications(
    there: NDArray[np.bool_],
    writes: NDArray[np.bool_],
    opened: NDArray[np.bool_],
    departures: int,
    hold: int,
    key: np.uint64,
    *,
    in_order: bool = False,
) -> PublicationSchedule:
    """`there`, `writes` and `opened` say for each epoch whether the publisher was present, whether it wrote something,
    and whether its path to the root was open. `in_order`: each draw is at least the one before."""
    left, read, delay = _schedule(writes, opened & there, max(1, departures), hold, key, in_order)
    return PublicationSchedule(left, read, float(delay))


@jit
def _schedule(
    writes: NDArray[np.bool_], opened: NDArray[np.bool_], departures: int, hold: int, key: np.uint64, in_order: bool
) -> tuple[NDArray[np.int32], NDArray[np.int32], float]:
    count = writes.size
    left, read = np.zeros(count, np.int32), np.zeros(count, np.int32)
    waiting, due, waited, came, last, written, sent = 0, 0, 0, 0, 0, 0, 0
    planned = np.zeros(count, np.int64)
    for epoch in range(count):
        stretch = epoch // departures
        waiting += writes[epoch]
        if writes[epoch]:
            last = max(epoch + int(to_fraction(draw_bits(key, HOLDS, 0, epoch, 0)) * (hold + 1)), last)
            planned[written] = last
            written += 1
        if epoch == stretch * departures + int(to_fraction(draw_bits(key, DEPARTURES, 0, stretch, 0)) * departures):
            due = waiting
        if not opened[epoch]:
            continue
        left[epoch], waiting = due, waiting - due
        for note in range(due):
            until = epoch + int(to_fraction(draw_bits(key, HOLDS, note, epoch, 0)) * (hold + 1))
            if in_order:
                until = max(planned[sent], epoch)
                sent += 1
            if until < count:
                read[until] += 1
        due = 0
    # The oldest leave first: the sum of delays is the sum of delivery epochs less that of as many first writing epochs.
    for epoch in range(count):
        waited += epoch * read[epoch]
        came += read[epoch]
    for epoch in range(count):
        if writes[epoch] and came > 0:
            waited -= epoch
            came -= 1
    total = read.sum()
    return left, read, waited / total if total > 0 else 0.0
