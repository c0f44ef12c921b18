"""Each possible fault of a frame happens, and nothing else with it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from veilcast.errors import ConfigError
from veilcast.machine import Address
from veilcast.sim.host import SimulatedHost
from veilcast.sim.links import CALM, DirectedLink, LinkDelays, Weather

A, B = Address("a"), Address("b")
FRAMES = 400


def flights(weather: Weather, jitter_us: tuple[int, ...] = (0,), seed: int = 1) -> list[tuple[int, ...]]:
    """Transit times of frames that leave one link at one a millisecond."""
    link = DirectedLink(0, A, SimulatedHost(0, B), latency_us=10_000)
    return [
        tuple(arrival - time for arrival in link.arrivals(time, seed, LinkDelays(jitter_us=jitter_us), weather))
        for time in range(0, FRAMES * 1_000, 1_000)
    ]


def test_in_calm_weather_every_frame_takes_the_latency() -> None:
    assert flights(CALM) == [(10_000,)] * FRAMES


def test_loss_loses_about_its_share_and_leaves_the_rest_alone() -> None:
    fates = flights(Weather(loss_ppm=250_000))
    assert FRAMES / 8 < fates.count(()) < FRAMES / 2
    assert all(fate in ((), (10_000,)) for fate in fates)


def test_duplication_adds_a_later_copy_and_leaves_the_first_alone() -> None:
    fates = flights(Weather(duplicate_ppm=250_000))
    twice = [fate for fate in fates if len(fate) == 2]
    assert FRAMES / 8 < len(twice) < FRAMES / 2
    assert all(fate[0] == 10_000 for fate in fates)
    assert all(first < second <= first + 10_000 for first, second in twice)


def test_reordering_lets_later_frames_overtake_and_loses_none() -> None:
    fates = flights(Weather(reorder_ppm=250_000, reorder_us=5_000))
    late = [fate for fate in fates if fate != (10_000,)]
    assert FRAMES / 8 < len(late) < FRAMES / 2
    assert all(10_000 < fate[0] <= 15_000 for fate in late)
    arrivals = [number * 1_000 + fate[0] for number, fate in enumerate(fates)]
    assert arrivals != sorted(arrivals)


def test_jitter_spreads_arrivals_but_keeps_their_order() -> None:
    fates = flights(CALM, jitter_us=(0, 7_000))
    arrivals = [number * 1_000 + fate[0] for number, fate in enumerate(fates)]
    assert arrivals == sorted(arrivals)
    assert len(dict.fromkeys(fates)) > FRAMES / 4
    assert all(10_000 <= fate[0] <= 17_000 for fate in fates)


def test_the_fate_of_a_frame_depends_on_seed_link_and_number_alone() -> None:
    storm = Weather(loss_ppm=300_000, duplicate_ppm=300_000)
    assert flights(storm) == flights(storm)
    assert flights(storm) != flights(storm, seed=2)


@given(st.integers(0, 2**64 - 1), st.text(max_size=5), st.text(max_size=5))
def test_a_pair_has_one_latency_both_ways_within_its_range(seed: int, u: str, v: str) -> None:
    links = LinkDelays(latency_us=(5_000, 6_000, 50_000))
    there = links.latency_between(Address(u), Address(v), seed)
    assert there == links.latency_between(Address(v), Address(u), seed)
    assert 5_000 <= there <= 50_000


@pytest.mark.parametrize(
    ("keys", "match"),
    [
        ({"latency_us": (0, 5)}, "latency_us"),
        ({"latency_us": ()}, "latency_us"),
        ({"jitter_us": (5, 1)}, "jitter_us"),
        ({"wander_us": -1}, "wander_us"),
    ],
)
def test_impossible_links_are_refused(keys: dict[str, Any], match: str) -> None:
    with pytest.raises(ConfigError, match=match):
        LinkDelays(**keys)


@pytest.mark.parametrize(
    ("keys", "match"),
    [
        ({"loss_ppm": 1_000_001}, "loss_ppm"),
        ({"reorder_ppm": 1}, "reorder_us"),
        ({"duplicate_ppm": -1}, "duplicate_ppm"),
    ],
)
def test_impossible_weather_is_refused(keys: dict[str, int], match: str) -> None:
    with pytest.raises(ConfigError, match=match):
        Weather(**keys)


def test_replay_sends_about_its_share_again_later() -> None:
    fates = flights(Weather(replay_ppm=250_000, replay_us=5_000_000))
    again = [fate for fate in fates if len(fate) == 2]
    assert FRAMES // 8 < len(again) < FRAMES // 2
    assert all(fate[0] == 10_000 for fate in fates)
    assert all(10_000 < fate[1] <= 5_010_000 for fate in again)
    assert max(fate[1] for fate in again) > 2_000_000


def test_a_frame_can_come_three_times() -> None:
    assert {len(fate) for fate in flights(Weather(duplicate_ppm=500_000, replay_ppm=500_000, replay_us=9))} == {1, 2, 3}
