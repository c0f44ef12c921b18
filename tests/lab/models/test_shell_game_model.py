"""The shell game of the kernels: only places change, all arrangements come up, and time, decay and locks are P0's.

Figures are P0's (n = 500, degree 4, a tenth subscribe), as an independent model of the same reading gives them.
"""

from __future__ import annotations

from collections import Counter
from itertools import permutations
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chisquare

from support.plain_shell_game import Rules, play
from veilcast.errors import ConfigError
from veilcast.lab.models.cover import add_covers
from veilcast.lab.models.graph import from_edges, small_world
from veilcast.lab.models.mesh import MeshTree, build_mesh, draw_roles
from veilcast.lab.models.shell_game import GameOutcome, play_events, play_swaps

SURE = 3.9
"""Standard errors: a difference beyond them comes by chance once in ten thousand times."""


def setting(seed: int, n: int = 500, ratio: float = 0.1) -> tuple[MeshTree, np.ndarray]:
    graph = small_world(n, 4, 0.2, seed)
    publisher, subscribers = draw_roles(graph, ratio, seed)
    return build_mesh(graph, publisher, subscribers, seed), subscribers


def tree(edges: str) -> tuple[MeshTree, np.ndarray]:
    """A mesh from its edges, `01 12`, parents first; the publisher is 0, and who has no child subscribes."""
    above, below = [int(edge[0]) for edge in edges.split()], [int(edge[1]) for edge in edges.split()]
    leaves = np.array(sorted(set(below) - set(above)), np.int32)
    return build_mesh(from_edges(len(below) + 1, above, below), 0, leaves, 1), leaves


def leaf_ratio(mesh: MeshTree, subscribers: np.ndarray, occupant: np.ndarray) -> float:
    """The share of subscribers among those who have no child."""
    leaves = (np.diff(mesh.children[0]) == 0) & (mesh.parent >= 0)
    return float(reads(mesh, subscribers)[occupant[leaves]].mean())


def reads(mesh: MeshTree, subscribers: np.ndarray) -> np.ndarray:
    mask = np.zeros(len(mesh.parent), np.bool_)
    mask[subscribers] = True
    return mask


def unfair(mesh: MeshTree, played: GameOutcome) -> str:
    """What this game did that none may; nothing if it is in order."""
    if played.occupant[mesh.publisher] != mesh.publisher:
        return "the publisher has moved"
    if sorted(played.occupant[mesh.members]) != mesh.members.tolist():
        return "somebody has gone, or has two places"
    if (played.occupant[mesh.parent < 0] != -1).any():
        return "a place outside the mesh"
    return ""


# --- what every game keeps to


@given(
    seed=st.integers(0, 2**64 - 1),
    n=st.integers(5, 80),
    decay=st.sampled_from([0.0, 0.05, 0.5]),
    by=st.sampled_from(["time", "count"]),
    start=st.sampled_from(["immediate", "wait"]),
    lock_s=st.sampled_from([0.0, 0.3]),
    hop_s=st.sampled_from([0.0, 0.05]),
    mu=st.sampled_from([0.0, 0.7]),
)
def test_only_places_change_and_the_publisher_keeps_its_own(
    seed: int, n: int, decay: float, by: Any, start: Any, lock_s: float, hop_s: float, mu: float
) -> None:
    graph = small_world(n, 4, 0.2, seed)
    publisher, subscribers = draw_roles(graph, 0.2, seed)
    mesh = add_covers(graph, build_mesh(graph, publisher, subscribers, seed), mu, seed)
    rules = {"decay": decay, "decay_by": by, "start": start, "lock_s": lock_s, "hop_s": hop_s}
    looks = play_events(mesh, subscribers, seed, look="seconds", steps=[0.0, 1.0, 20.0], **rules)
    assert [unfair(mesh, look) for look in looks] == ["", "", ""]
    assert [look.seconds for look in looks] == [0.0, 1.0, 20.0]
    assert looks[0].swaps <= looks[1].swaps <= looks[2].swaps
    # The same game, looked at by swaps.
    (again,) = play_events(mesh, subscribers, seed, look="swaps", steps=[looks[2].swaps], **rules)
    assert again.occupant.tolist() == looks[2].occupant.tolist()
    assert (again.swaps, again.messages) == (looks[2].swaps, looks[2].messages)
    assert again.seconds <= 20.0


@pytest.mark.parametrize(
    ("occupant", "fault"),
    [([1, 0, 2, -1], "moved"), ([0, 2, 2, -1], "two places"), ([0, 1, 2, 3], "outside")],
)
def test_the_check_of_a_game_sees_each_fault(occupant: list[int], fault: str) -> None:
    mesh = MeshTree(0, np.array([0, 0, 1, -1], np.int32), np.array([0, 1, 2, 3], np.int32))
    assert fault in unfair(mesh, GameOutcome(np.array(occupant), 1, 0.0, 0))


@given(seed=st.integers(0, 2**64 - 1), swaps=st.integers(0, 300))
def test_fewer_bare_swaps_are_the_beginning_of_more(seed: int, swaps: int) -> None:
    mesh, _ = setting(seed % 100, 60)
    before, after = play_swaps(mesh, swaps, seed), play_swaps(mesh, swaps + 1, seed)
    assert unfair(mesh, before) == unfair(mesh, after) == ""
    changed = np.flatnonzero(before.occupant != after.occupant)
    assert len(changed) == 2
    assert mesh.parent[changed[0]] == changed[1] or mesh.parent[changed[1]] == changed[0]
    assert after.swaps == swaps + 1


def test_no_swaps_change_nothing_and_nobody_with_a_child_plays_none() -> None:
    mesh, subscribers = setting(1)
    for still in (play_swaps(mesh, 0, 1), *play_events(mesh, subscribers, 1, look="swaps", steps=[0])):
        assert still.occupant[mesh.members].tolist() == mesh.members.tolist()
    flat, leaves = tree("01 02")
    assert play_swaps(flat, 9, 1).swaps == 0
    (never,) = play_events(flat, leaves, 1, look="swaps", steps=[9])
    assert (never.swaps, never.seconds, never.messages) == (0, 0.0, 0)


def test_a_game_depends_on_its_parameters_and_seed_alone() -> None:
    mesh, subscribers = setting(3)

    def played(seed: int) -> list[list[int]]:
        events = play_events(mesh, subscribers, seed, decay=0.05)
        return [game.occupant.tolist() for game in (*events, play_swaps(mesh, 500, seed))]

    before = played(1)
    assert played(2) != before
    assert played(1) == before


# --- where it leads


@pytest.mark.parametrize("mode", ["swaps", "events"])
def test_in_the_end_every_arrangement_is_equally_likely(mode: str) -> None:
    """Three places on one branch and two on another: 12 arrangements, in 4,800 games of 60 swaps or one more."""
    mesh, leaves = tree("01 12 13 04 45")
    seen = Counter(dict.fromkeys(permutations(range(1, 6)), 0))
    for seed in range(4800):
        swaps = 60 + seed % 2
        if mode == "swaps":
            game = play_swaps(mesh, swaps, seed)
        else:
            (game,) = play_events(mesh, leaves, seed, look="swaps", steps=[swaps])
        seen[tuple(game.occupant[1:].tolist())] += 1
    # Those below 1 never meet those below 4: nobody passes through the publisher's place.
    counts = [count for arrangement, count in seen.items() if set(arrangement[:3]) == {1, 2, 3}]
    assert sum(counts) == 4800
    assert len(counts) == 12
    assert chisquare(counts).pvalue > 1e-4


# --- its cost


def test_a_swap_costs_three_messages_for_each_neighbour_of_one_and_one_for_each_of_the_other() -> None:
    """On a path there is one edge to play: 3 (1 + 1) + 1 + 0; with two leaves below it, 3 (1 + 2) + 1 + 0."""
    for edges, cost in (("01 12", 7), ("01 12 13", 10)):
        mesh, leaves = tree(edges)
        assert play_swaps(mesh, 10, 1).messages == 10 * cost
        (game,) = play_events(mesh, leaves, 1, start="wait", look="swaps", steps=[10])
        assert game.messages == 10 * cost


def test_p0_4_7_a_game_costs_nine_messages_on_average() -> None:
    games = [play_swaps(setting(seed)[0], 5000, seed) for seed in range(30)]
    assert np.mean([game.messages / game.swaps for game in games]) == pytest.approx(8.9, abs=0.1)


# --- its time


def test_a_subscription_on_its_way_up_takes_its_node_along() -> None:
    """The subscriber 3 joins when the advert has come three hops, and its request makes three more."""
    mesh, leaves = tree("01 12 23")
    for seconds, occupant in ((0.39, [0, 1, 2, 3]), (0.41, [0, 1, 3, 2]), (0.51, [0, 3, 1, 2])):
        (game,) = play_events(mesh, leaves, 1, wait_s=1e9, hop_s=0.1, look="seconds", steps=[seconds])
        assert game.occupant.tolist() == occupant


def test_a_lock_keeps_neighbours_from_playing_and_others_not() -> None:
    """There is room for one game on a branch of three, and for two on two of them."""
    branch, leaves = tree("01 12 23")
    apart, others = tree("01 12 03 34")
    rules: dict[str, Any] = {"start": "wait", "lock_s": 1e6, "hop_s": 0.0, "look": "seconds", "steps": [1e4]}
    assert [play_events(branch, leaves, seed, **rules)[0].swaps for seed in range(5)] == [1] * 5
    # The publisher is next to both, and is held as well.
    assert [play_events(apart, others, seed, **rules)[0].swaps for seed in range(5)] == [1] * 5
    deep, far = tree("01 12 23 04 45 56")
    assert [play_events(deep, far, seed, **rules)[0].swaps for seed in range(5)] == [2] * 5


def mean_of(rules: dict[str, Any], seeds: int = 300) -> np.ndarray:
    """Means of (leaf ratio, swaps, seconds, messages) over P0's meshes."""
    found = []
    for seed in range(seeds):
        mesh, subscribers = setting(seed)
        game = play_events(mesh, subscribers, seed, **rules)[-1]
        found.append((leaf_ratio(mesh, subscribers, game.occupant), game.swaps, game.seconds, game.messages))
    return np.asarray(np.array(found).mean(axis=0))


def test_p0_fig_14_587_games_take_25_seconds_and_bring_the_ratio_to_its_limit() -> None:
    ratio, _, seconds, _ = mean_of({"look": "swaps", "steps": [587]})
    assert seconds == pytest.approx(24.8, abs=0.6)
    assert ratio == pytest.approx(0.354, abs=0.025)


def test_p0_fig_14_the_ratio_goes_below_its_limit_first_and_then_returns() -> None:
    ratios = [mean_of({"look": "swaps", "steps": [swaps]}, 100)[0] for swaps in (30, 90, 200)]
    assert ratios[0] > 0.5
    assert ratios[1] == pytest.approx(0.09, abs=0.02)
    assert ratios[1] < ratios[2] < 0.3


def test_with_waits_from_the_beginning_587_games_take_30_seconds_and_the_ratio_falls_from_above() -> None:
    ratio, _, seconds, _ = mean_of({"look": "swaps", "steps": [587], "start": "wait"})
    assert (ratio, seconds) == (pytest.approx(0.40, abs=0.015), pytest.approx(29.9, abs=0.7))


@pytest.mark.parametrize(
    ("decay", "swaps", "ratio"), [(0.03, 765, 0.363), (0.04, 601, 0.342), (0.05, 497, 0.342), (0.1, 298, 0.283)]
)
def test_p0_fig_15_decay_by_time_ends_the_game(decay: float, swaps: int, ratio: float) -> None:
    found = mean_of({"decay": decay})
    assert found[1] == pytest.approx(swaps, rel=0.02)
    assert found[0] == pytest.approx(ratio, abs=0.02)


def test_p0_fig_16_decay_by_count_of_a_half_stops_half_way() -> None:
    rules = {"decay": 0.5, "decay_by": "count", "start": "wait", "look": "seconds", "steps": [300]}
    assert mean_of(rules, 100)[0] == pytest.approx(0.52, abs=0.03)


def test_locks_make_it_slower() -> None:
    times = [mean_of({"lock_s": lock_s, "look": "swaps", "steps": [587]}, 60)[2] for lock_s in (0.0, 0.1, 0.5, 1.0)]
    assert times == sorted(times)
    assert times[3] > 2 * times[0]


@pytest.mark.parametrize(
    "rules",
    [
        Rules(hop_s=1 / 16),
        Rules(decay=0.2, hop_s=1 / 16),
        Rules(decay=0.2, immediate=False, hop_s=1 / 4),
        Rules(decay=0.4, by_count=True, hop_s=1 / 16),
        Rules(decay=0.05, lock_s=0.7, hop_s=1 / 4),
    ],
)
def test_the_kernel_plays_as_nodes_with_timers_of_their_own_do(rules: Rules) -> None:
    """Swaps, leaf ratio, and how deep subscribers are, by means of 200 games and of 1,000."""
    for seed, until_s in enumerate((0.7, 12.0)):
        slow, fast = beside(rules, rules, seed, until_s)
        assert abs(difference(slow, fast)).max() < SURE


@pytest.mark.parametrize(
    "planted", [Rules(hop_s=1 / 16), Rules(decay=0.2, hop_s=1 / 16, immediate=False), Rules(decay=0.3, hop_s=1 / 16)]
)
def test_that_comparison_sees_other_rules(planted: Rules) -> None:
    slow, fast = beside(planted, Rules(decay=0.2, hop_s=1 / 16), 1, 4.0)
    assert abs(difference(slow, fast)).max() > SURE


def beside(one: Rules, other: Rules, seed: int, until_s: float) -> tuple[np.ndarray, np.ndarray]:
    """What came of games told plainly by one set of rules, and of the kernel's by another."""
    mesh, subscribers = setting(seed, 60, 0.25)

    def of(occupant: np.ndarray, swaps: int) -> tuple[float, float, float]:
        depth = mesh.distance[mesh.members][reads(mesh, subscribers)[occupant[mesh.members]]].mean()
        return swaps, leaf_ratio(mesh, subscribers, occupant), float(depth)

    slow, fast = [], []
    for run in range(200):
        places, swaps = play(mesh, subscribers.tolist(), one, until_s, Random(run))
        slow.append(of(np.array([places.get(place, -1) for place in range(60)]), swaps))
    for run in range(1000):
        (game,) = play_events(
            mesh,
            subscribers,
            run,
            decay=other.decay,
            decay_by="count" if other.by_count else "time",
            start="immediate" if other.immediate else "wait",
            wait_s=other.wait_s,
            lock_s=other.lock_s,
            hop_s=other.hop_s,
            look="seconds",
            steps=[until_s],
        )
        fast.append(of(game.occupant, game.swaps))
    return np.array(slow), np.array(fast)


def difference(slow: np.ndarray, fast: np.ndarray) -> np.ndarray:
    """Of the means, in standard errors."""
    error = (slow.var(axis=0) / len(slow) + fast.var(axis=0) / len(fast)) ** 0.5
    return np.asarray((slow.mean(axis=0) - fast.mean(axis=0)) / np.maximum(error, 1e-9))


# --- what is refused


@pytest.mark.parametrize(
    "rules",
    [
        {},
        {"decay": -1.0},
        {"wait_s": 0.0},
        {"look": "swaps"},
        {"look": "swaps", "steps": [2, 1]},
        {"decay": 0.1, "look": "end", "steps": [1]},
        {"decay": 1e6},
    ],
)
def test_a_game_without_sense_is_refused(rules: dict[str, Any]) -> None:
    mesh, subscribers = setting(1)
    with pytest.raises(ConfigError):
        play_events(mesh, subscribers, 1, **rules)
