"""Faults begin and end at their times; a swarm differs for each seed, and leaves calm at the end."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.frame_adversaries import ScriptedPeer
from veilcast.errors import ConfigError
from veilcast.machine import Address, Frame
from veilcast.sim.faults import SWARM_KINDS, AnyFault, Crash, Partition, Pause, Skew, Storm, draw_swarm, inject_faults
from veilcast.sim.links import LinkDelays, Weather
from veilcast.sim.world import World

A, B = Address("a"), Address("b")
NODES = tuple(Address(f"n{i}") for i in range(20))
SECOND = 1_000_000


def arrivals(*faults: AnyFault) -> list[int]:
    """Arrivals of ten frames from a to b, one each tenth of a second, over a link of a tenth."""
    world = World(seed=1, links=LinkDelays(latency_us=(100_000,)))
    got: list[int] = []

    class Ear(ScriptedPeer):
        def receive(self, data: bytes, source: Address, now: int) -> None:
            got.append((now - world.start) // 100_000)

    world.add(A, lambda birth: ScriptedPeer([(birth.now + i * 100_000, Frame(B, b"x")) for i in range(10)]))
    world.add(B, lambda birth: Ear())
    inject_faults(world, faults)
    world.run(5 * SECOND)
    return got


def test_without_faults_all_arrives_in_time() -> None:
    assert arrivals() == [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]


def test_a_crash_loses_what_comes_between_its_ends() -> None:
    assert arrivals(Crash(node=B, at_us=250_000, for_us=300_000)) == [1, 2, 6, 7, 8, 9, 10]


def test_a_crash_without_an_end_is_for_good() -> None:
    assert arrivals(Crash(node=B, at_us=250_000)) == [1, 2]


def test_a_pause_shifts_what_comes_between_its_ends() -> None:
    assert arrivals(Pause(node=B, at_us=250_000, for_us=300_000)) == [1, 2, 5, 5, 5, 6, 7, 8, 9, 10]


def test_a_partition_loses_what_is_sent_between_its_ends_one_way() -> None:
    there = Partition(sources=(A, B), targets=(B,), at_us=250_000, for_us=300_000)
    assert arrivals(there) == [1, 2, 3, 7, 8, 9, 10]
    back = Partition(sources=(B,), targets=(A,), at_us=250_000, for_us=300_000)
    assert arrivals(back) == arrivals()


def test_a_storm_rages_between_its_ends() -> None:
    storm = Storm(weather=Weather(loss_ppm=1_000_000), at_us=250_000, for_us=300_000)
    assert arrivals(storm) == [1, 2, 3, 7, 8, 9, 10]


def test_a_skew_shifts_what_a_host_is_told() -> None:
    assert arrivals(Skew(node=B, offset_us=500_000)) == [6, 7, 8, 9, 10, 11, 12, 13, 14, 15]


def test_swarms_differ_between_seeds_and_all_kinds_come_up() -> None:
    def switched_on(seed: int) -> tuple[str, ...]:
        found: dict[str, None] = {}
        for fault in draw_swarm(seed, NODES, 10 * SECOND, SWARM_KINDS):
            if isinstance(fault, Storm):
                found |= {k: None for k in SWARM_KINDS if getattr(fault.weather, f"{k}_ppm", 0)}
            else:
                found[type(fault).__name__.lower()] = None
        return tuple(sorted(found))

    subsets = [switched_on(seed) for seed in range(100)]
    assert len(dict.fromkeys(subsets)) > 40
    for kind in SWARM_KINDS:
        assert 30 < sum(kind in subset for subset in subsets) < 70


def test_drawn_partitions_cut_the_few_off_from_the_many_and_the_many_from_the_few() -> None:
    cuts = [cut for seed in range(60) for cut in draw_swarm(seed, NODES, 10 * SECOND, ["partition"])]
    partitions = [cut for cut in cuts if isinstance(cut, Partition)]
    to_the_many = sum(len(cut.sources) < len(cut.targets) for cut in partitions)
    to_the_few = sum(len(cut.sources) > len(cut.targets) for cut in partitions)
    assert min(to_the_many, to_the_few) > len(partitions) // 4
    for cut in partitions:
        assert sorted(cut.sources + cut.targets) == sorted(NODES)


@given(st.integers(0, 2**64 - 1), st.integers(100, 10**8))
def test_the_last_quarter_of_a_swarm_is_calm(seed: int, horizon: int) -> None:
    for fault in draw_swarm(seed, NODES, horizon, SWARM_KINDS):
        if not isinstance(fault, Skew):
            assert fault.for_us is not None
            late_us = fault.weather.replay_us if isinstance(fault, Storm) else 0
            assert fault.at_us + fault.for_us + late_us <= max(2, horizon * 3 // 4)


@given(st.integers(0, 2**64 - 1), st.lists(st.sampled_from(SWARM_KINDS), unique=True))
def test_leaving_a_kind_out_leaves_the_others_as_they_were(seed: int, kinds: list[str]) -> None:
    whole = [f for f in draw_swarm(seed, NODES, SECOND, SWARM_KINDS) if not isinstance(f, Storm)]
    part = [f for f in draw_swarm(seed, NODES, SECOND, kinds) if not isinstance(f, Storm)]
    assert all(fault in whole for fault in part)


@pytest.mark.parametrize("keys", [{"at_us": -1}, {"for_us": 0}])
def test_impossible_times_are_refused(keys: dict[str, int]) -> None:
    with pytest.raises(ConfigError, match=next(iter(keys))):
        Crash(node=A, **keys)


def test_a_skew_has_no_end() -> None:
    with pytest.raises(ConfigError, match="for_us"):
        Skew(node=A, for_us=5)
