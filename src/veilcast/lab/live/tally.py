"""What became of a population's notes: which reader got which, when, and how often."""

from __future__ import annotations

from collections import Counter

from veilcast.machine import Address, Delivered, Event
from veilcast.sim.engine import START_US
from veilcast.sim.mesh import MeshPopulation


class Tally:
    """Takes the events of a town of one topic; `take` is its `on_event`."""

    def __init__(self, population: MeshPopulation, seed: int) -> None:
        self._population = population
        self.readers = population.roles(seed)[1]
        self._got: Counter[tuple[Address, int]] = Counter()
        self.late_us: list[int] = []
        """How long each took from when it was to be published."""

    def take(self, address: Address, event: Event, now: int) -> None:
        if isinstance(event, Delivered):
            number = int(event.note.publication.body.split()[1])
            if not self._got[address, number]:
                self.late_us.append(now - START_US - self._population.first_us - number * self._population.every_us)
            self._got[address, number] += 1

    @property
    def pairs(self) -> int:
        """Of a note and a reader that should have it."""
        return self._population.notes * len(self.readers)

    @property
    def delivered(self) -> int:
        return len(self._got)

    @property
    def repeated(self) -> int:
        """Deliveries of what had been delivered, and acknowledged, before."""
        return self._got.total() - len(self._got)

    def missing(self) -> list[tuple[Address, int]]:
        return [
            (reader, number)
            for reader in self.readers
            for number in range(self._population.notes)
            if (reader, number) not in self._got
        ]


def quantile(values: list[int], share: float) -> float:
    """In the unit of the values; 0 of none."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))] if ordered else 0.0
