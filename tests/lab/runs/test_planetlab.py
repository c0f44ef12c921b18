"""Hosts on PlanetLab's machines: real distances, and a stated rule for those that are too many."""

from __future__ import annotations

import numpy as np

from veilcast.lab.runs.planetlab import place_on_planetlab
from veilcast.machine import Address

TIMES = np.array([[0.0, 2.0, 40.0], [2.0, 0.0, 60.0], [40.0, 60.0, 0.0]])


def hosts(count: int) -> list[Address]:
    return [Address(f"n{number}") for number in range(count)]


def distances(count: int, seed: int) -> list[int]:
    links, names = place_on_planetlab(hosts(count), TIMES, seed), hosts(count)
    return sorted(links.latency_between(u, v, 0) for u in names for v in names if u < v)


def test_as_many_hosts_as_machines_are_as_far_apart_as_these() -> None:
    assert {tuple(distances(3, seed)) for seed in range(10)} == {(1_000, 20_000, 30_000)}


def test_hosts_are_dealt_anew_for_each_run_and_the_same_way_for_the_same() -> None:
    first, second = hosts(3)[:2]
    assert len({place_on_planetlab(hosts(3), TIMES, seed).latency_between(first, second, 0) for seed in range(20)}) == 3
    assert place_on_planetlab(hosts(3), TIMES, 7) == place_on_planetlab(hosts(3), TIMES, 7)


def test_who_is_left_over_stands_beside_a_machine_as_neighbours_do() -> None:
    # The times to the nearest are 2, 2 and 40; their median is 2 ms.
    for seed in range(20):
        assert distances(4, seed)[:2] in ([1_000, 1_000], [1_000, 20_000])
        assert len(distances(4, seed)) == 6


def test_a_frame_takes_as_long_one_way_as_the_other_and_never_no_time() -> None:
    links = place_on_planetlab(hosts(40), TIMES / 1e6, 1)
    for u in hosts(40):
        for v in hosts(40):
            assert links.latency_between(u, v, 0) == links.latency_between(v, u, 0) >= 1
