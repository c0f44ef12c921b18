"""Hosts of the simulator at the distances of PlanetLab's machines, as they were measured.

Each run assigns hosts to machines at random. If there are more hosts than machines, each surplus host stands
beside a random machine. It is as far from all others as that machine is. Its distance from that machine is that of two
machines on one site: the median, over all machines, of the time to the nearest. A frame takes half of the round trip.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from veilcast.lab.models.rng import stream
from veilcast.machine import Address
from veilcast.sim.links import LinkDelays


class PlanetLabLinks(LinkDelays, frozen=True, kw_only=True):
    """Links between hosts, each of which has a place."""

    places: dict[Address, int]
    one_way_us: tuple[tuple[int, ...], ...]
    """One-way times from place to place."""

    def latency_between(self, u: Address, v: Address, seed: int) -> int:
        return self.one_way_us[self.places[u]][self.places[v]]


def place_on_planetlab(hosts: Sequence[Address], round_trips_ms: NDArray[np.float64], seed: int) -> PlanetLabLinks:
    """`round_trips_ms` are those of `data.load_round_trips`."""
    places = {host: place for place, host in enumerate(hosts)}
    one_way = np.maximum(1, np.rint(500 * _dealt(len(hosts), round_trips_ms, seed))).astype(np.int64)
    return PlanetLabLinks(places=places, one_way_us=tuple(map(tuple, one_way.tolist())))


def _dealt(hosts: int, times: NDArray[np.float64], seed: int) -> NDArray[np.float64]:
    machines = len(times)
    rng = np.random.default_rng(stream(seed, "places"))
    alone = rng.permutation(machines)[:hosts]
    machine = np.concatenate([alone, rng.integers(machines, size=hosts - len(alone))])
    between = times[np.ix_(machine, machine)]
    nearest = np.median(np.where(times > 0, times, np.inf).min(axis=1))
    together = machine[:, None] == machine
    dealt: NDArray[np.float64] = np.where(together, nearest, between)
    return dealt
