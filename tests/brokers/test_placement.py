"""The paper's framework places replicas as printed, and pairs place them better."""

from __future__ import annotations

import random
from collections.abc import Callable
from fractions import Fraction
from itertools import combinations_with_replacement, pairwise
from statistics import mean

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from veilcast.brokers.operations.placement import (
    OverlayPath,
    check_available,
    estimate_risk,
    greedy_pair_plan,
    honest_majority_probability,
    largest_remainder,
    path_priorities,
    soundness,
    three_phase_plan,
    unprotected_paths,
)
from veilcast.brokers.topology import OverlayTree, parse_overlay
from veilcast.errors import ConfigError, LocalError

few = settings(max_examples=15)

FIG_5 = [
    OverlayPath("P-S1", ("B1", "B2", "B3")),
    OverlayPath("P-S2", ("B1", "B2", "B4")),
    OverlayPath("P-S3", ("B1", "B2", "B5", "B6")),
]
FAILURES = {"B1": 2, "B2": 2, "B3": 1, "B4": 2, "B5": 3, "B6": 1}
"""Figure 5 gives no topology and no failures; these make its two remarks true."""


def weight_paths(wanted: list[int]) -> list[OverlayPath]:
    """The paths of Figure 5, with the wanted priorities."""
    plain = path_priorities(FIG_5, FAILURES)
    return [
        OverlayPath(path.name, path.nodes, want / own) for path, want, own in zip(FIG_5, wanted, plain, strict=True)
    ]


# --- the three phases -------------------------------------------------------------------------------------------------


def test_fig_5_ten_replicas_are_allotted_as_2_3_and_5() -> None:
    paths = weight_paths([2, 3, 5])
    assert path_priorities(paths, FAILURES) == [2, 3, 5]
    assert largest_remainder(path_priorities(paths, FAILURES), 10) == [2, 3, 5]


def test_fig_5_nodes_share_the_packs_of_their_paths() -> None:
    plan = three_phase_plan(weight_paths([2, 3, 5]), FAILURES, 10)
    assert plan.packs == {
        "P-S1": {"B1": 1, "B2": 1},
        "P-S2": {"B1": 1, "B2": 1, "B4": 1},
        "P-S3": {"B1": 1, "B2": 1, "B5": 2, "B6": 1},
    }
    assert plan.sizes == {"B1": 4, "B2": 4, "B3": 1, "B4": 2, "B5": 3, "B6": 2}
    assert plan.unused == 0


def test_fig_5_remarks_nodes_of_two_appear_and_their_paths_are_reported() -> None:
    plan = three_phase_plan(weight_paths([2, 3, 5]), FAILURES, 10)
    assert plan.unprotected == ("P-S1", "P-S2", "P-S3")
    with pytest.raises(ConfigError, match=r"'B1'.*even"):
        plan.check_hardened()


def test_the_third_phase_takes_from_the_node_that_fails_least() -> None:
    plan = three_phase_plan(weight_paths([2, 3, 5]), FAILURES, 10, cap=3)
    assert plan.packs["P-S3"] == {"B2": 1, "B5": 2}
    assert plan.packs["P-S1"] == {"B1": 1, "B2": 1}
    assert plan.unused == 2


def test_the_variation_gives_a_node_one_pack_and_the_rest_to_the_smallest_nodes() -> None:
    plan = three_phase_plan(weight_paths([2, 3, 5]), FAILURES, 10, once=True)
    assert sum(plan.sizes.values()) == 6 + 10
    assert plan.sizes["B1"] < 4
    assert plan.sizes["B3"] > 1


def test_priority_is_length_times_failures_times_weight() -> None:
    paths = [OverlayPath("short", ("a",)), OverlayPath("long", ("a", "b"), Fraction(3))]
    assert path_priorities(paths, {"a": 1, "b": 2}) == [Fraction(1, 4), 2 * Fraction(3, 4) * 3]


def test_where_nothing_failed_nothing_is_allotted() -> None:
    plan = three_phase_plan(FIG_5, {}, 10)
    assert plan.unused == 10
    assert set(plan.sizes.values()) == {1}


@given(st.lists(st.integers(0, 99), min_size=1, max_size=8), st.integers(0, 50))
@few
def test_largest_remainders_spend_all_and_stay_within_one_of_the_proportion(weights: list[int], seats: int) -> None:
    counts = largest_remainder(weights, seats)
    total = sum(weights)
    if not total:
        assert not any(counts)
        return
    assert sum(counts) == seats
    assert all(abs(count - Fraction(weight * seats, total)) < 1 for count, weight in zip(counts, weights, strict=True))


def test_equal_weights_do_not_depend_on_rounding() -> None:
    """In floating point 0.1 * 3 is not 0.3: exact fractions distribute ten equal weights in order."""
    assert largest_remainder([Fraction(1, 10)] * 10, 25) == [3, 3, 3, 3, 3, 2, 2, 2, 2, 2]


paths_of = st.lists(
    st.lists(st.sampled_from("abcdefgh"), min_size=1, max_size=5, unique=True), min_size=1, max_size=6
).map(lambda ways: [OverlayPath(str(at), tuple(way)) for at, way in enumerate(ways)])


@given(paths_of, st.dictionaries(st.sampled_from("abcdefgh"), st.integers(0, 9)), st.integers(0, 30), st.booleans())
@few
def test_a_plan_uses_the_replicas_it_reports(
    paths: list[OverlayPath], failures: dict[str, int], replicas: int, once: bool
) -> None:
    for cap in (None, 0, 3):
        plan = three_phase_plan(paths, failures, replicas, cap=cap, once=once)
        assert sum(size - 1 for size in plan.sizes.values()) + plan.unused == replicas
        assert plan.unused >= 0
        if cap is not None:
            assert all(sum(pack.values()) <= cap for pack in plan.packs.values())


# --- pairs ------------------------------------------------------------------------------------------------------------


def test_even_nodes_are_worse_than_the_odd_ones_below() -> None:
    assert [round(honest_majority_probability(size, 0.05), 4) for size in (1, 2, 3, 4, 5)] == [
        0.95,
        0.9025,
        0.9927,
        0.986,
        0.9988,
    ]
    for half in range(1, 10):
        assert honest_majority_probability(2 * half, 0.05) < honest_majority_probability(2 * half - 1, 0.05)


@given(st.integers(1, 9), st.floats(0, 1))
@few
def test_the_probability_of_a_majority_matches_counting(size: int, risk: float) -> None:
    counted = 0.0
    for pattern in range(1 << size):
        bad = pattern.bit_count()
        if 2 * bad < size:
            counted += risk**bad * (1 - risk) ** (size - bad)
    assert honest_majority_probability(size, risk) == pytest.approx(counted)


@given(paths_of, st.dictionaries(st.sampled_from("abcdefgh"), st.floats(0, 1)), st.integers(0, 30))
@few
def test_pairs_keep_every_node_odd_and_never_harm(
    paths: list[OverlayPath], risks: dict[str, float], replicas: int
) -> None:
    plan = greedy_pair_plan(paths, risks, replicas)
    assert all(size % 2 for size in plan.sizes.values())
    assert sum(size - 1 for size in plan.sizes.values()) + plan.unused == replicas
    assert soundness(paths, plan.sizes, risks) >= soundness(paths, {}, risks) - 1e-12


@given(paths_of, st.dictionaries(st.sampled_from("abcdefgh"), st.floats(0.01, 0.3)), st.integers(0, 12))
@few
def test_a_cap_on_paths_holds_for_pairs_too(paths: list[OverlayPath], risks: dict[str, float], cap: int) -> None:
    plan = greedy_pair_plan(paths, risks, 40, cap=cap)
    assert all(sum(plan.sizes[node] - 1 for node in path.nodes) <= cap for path in paths)


def test_on_one_path_the_greedy_plan_is_the_best_of_all() -> None:
    path = [OverlayPath("p", ("a", "b", "c"))]
    risks = {"a": 0.05, "b": 0.2, "c": 0.1}
    best = max(
        soundness(path, {node: 1 + 2 * chosen.count(node) for node in "abc"}, risks)
        for chosen in combinations_with_replacement("abc", 4)
    )
    assert soundness(path, greedy_pair_plan(path, risks, 8).sizes, risks) == pytest.approx(best)


def test_pairs_stop_where_the_risk_is_above_one_half() -> None:
    plan = greedy_pair_plan([OverlayPath("p", ("a", "b"))], {"a": 0.6, "b": 0.0}, 10)
    assert plan.sizes == {"a": 1, "b": 1}
    assert plan.unused == 10
    assert plan.unprotected == ("p",)


# --- random overlays --------------------------------------------------------------------------------------------------

Instance = tuple[list[OverlayPath], dict[str, float], dict[str, int]]


def on_a_tree(seed: int) -> Instance:
    """60 brokers on a random tree, 40 paths between two of them; risks of 1 to 15 %."""
    rng = random.Random(seed)
    names = [f"B{at}" for at in range(60)]
    overlay = OverlayTree.build(dict.fromkeys(names, 1), [(names[at], names[rng.randrange(at)]) for at in range(1, 60)])
    paths = [OverlayPath(str(at), overlay.path(*rng.sample(names, 2))) for at in range(40)]
    return failing(paths, {name: rng.uniform(0.01, 0.15) for name in names}, rng)


def scattered_paths(seed: int) -> Instance:
    """The same, but paths of 3 to 8 brokers anywhere; risks up to 20 %."""
    rng = random.Random(seed)
    names = [f"B{at}" for at in range(60)]
    paths = [OverlayPath(str(at), tuple(rng.sample(names, rng.randint(3, 8)))) for at in range(40)]
    return failing(paths, {name: rng.uniform(0, 0.2) for name in names}, rng)


def failing(paths: list[OverlayPath], risks: dict[str, float], rng: random.Random) -> Instance:
    return paths, risks, {name: sum(rng.random() < risk for _ in range(1000)) for name, risk in risks.items()}


def means(draw: Callable[[int], Instance]) -> tuple[float, ...]:
    """None, three phases, once, greedy pairs: the mean over 12 instances with 80 replicas."""
    rows = []
    for seed in range(12):
        paths, risks, failures = draw(seed)
        sizes = [
            {},
            three_phase_plan(paths, failures, 80).sizes,
            three_phase_plan(paths, failures, 80, once=True).sizes,
            greedy_pair_plan(paths, risks, 80).sizes,
        ]
        rows.append([soundness(paths, each, risks) for each in sizes])
    return tuple(map(mean, zip(*rows, strict=True)))


def test_on_trees_pairs_give_what_the_prototype_found() -> None:
    """It had .571, .738 and .877 on instances that it does not describe: found among many distributions, so this is a
    calibration."""
    none, phases, once, greedy = means(on_a_tree)
    assert none == pytest.approx(0.571, abs=0.03)
    assert phases == pytest.approx(0.738, abs=0.03)
    assert greedy == pytest.approx(0.877, abs=0.03)
    assert none < once < phases < greedy


def test_on_scattered_paths_the_variation_is_worse_than_nothing() -> None:
    """It had .571 and .549."""
    none, phases, once, greedy = means(scattered_paths)
    assert none == pytest.approx(0.571, abs=0.03)
    assert once == pytest.approx(0.549, abs=0.03)
    assert once < none < phases < greedy


# --- bad input --------------------------------------------------------------------------------------------------------


def test_a_plan_for_more_replicas_than_exist_is_refused() -> None:
    with pytest.raises(ConfigError, match="asks for 11 replicas, and there are 10"):
        three_phase_plan(FIG_5, FAILURES, 11, available=10)
    with pytest.raises(ConfigError, match="asks for 12"):
        greedy_pair_plan(FIG_5, {}, 12, available=11)
    with pytest.raises(ConfigError, match="4 more replicas, and 3 are spare"):
        check_available({"a": 5, "b": 3}, {"a": 1, "b": 3}, 3)
    check_available({"a": 5, "b": 1}, {"a": 3, "b": 3}, 0)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: OverlayPath("p", ()),
        lambda: OverlayPath("p", ("a", "a")),
        lambda: OverlayPath("p", ("a",), Fraction(-1)),
        lambda: three_phase_plan(FIG_5, FAILURES, -1),
        lambda: three_phase_plan(FIG_5, {"B1": -1}, 1),
        lambda: three_phase_plan([FIG_5[0], FIG_5[0]], FAILURES, 1),
        lambda: greedy_pair_plan(FIG_5, {"B1": 1.5}, 2),
        lambda: estimate_risk(3, 2),
    ],
)
def test_invalid_input_is_refused(wrong: Callable[[], object]) -> None:
    with pytest.raises(LocalError):
        wrong()


def test_a_path_is_unprotected_if_one_node_is() -> None:
    assert unprotected_paths(FIG_5, {"B1": 3, "B2": 3, "B3": 3, "B4": 2, "B5": 3, "B6": 5}) == ["P-S2"]


def test_a_risk_is_never_zero() -> None:
    assert 0 < estimate_risk(0, 100) < estimate_risk(5, 100) < estimate_risk(100, 100) < 1


# --- the overlay ------------------------------------------------------------------------------------------------------


def test_an_overlay_has_one_path_between_any_two_nodes() -> None:
    overlay = parse_overlay(
        {
            "nodes": [{"name": "A", "replicas": 3}, {"name": "B"}, {"name": "C", "replicas": 5}],
            "links": [["A", "B"], ["C", "B"]],
        }
    )
    assert overlay.path("A", "C") == ("A", "B", "C")
    assert overlay.path("A", "A") == ("A",)
    assert overlay.neighbours["B"] == ("A", "C")
    with pytest.raises(ConfigError, match="'B' has 1 of at least 3"):
        overlay.check_hardened()


NODES = [{"name": name} for name in "ABCD"]


@pytest.mark.parametrize(
    ("table", "why"),
    [
        ({"nodes": NODES, "links": [["A", "B"], ["B", "C"], ["C", "A"]]}, "cycle: C - B - A - C"),
        ({"nodes": NODES, "links": [["A", "B"], ["C", "D"]]}, "gap.*'A' to 'C', 'D'"),
        ({"nodes": NODES, "links": [["A", "E"]]}, "'E'"),
        ({"nodes": NODES, "links": [["A", "A"]]}, "themselves"),
        ({"nodes": NODES, "links": [["A", "B"], ["B", "A"]]}, "twice"),
        ({"nodes": [*NODES, {"name": "A"}]}, "two virtual nodes"),
        ({"nodes": []}, "1 to"),
        ({"nodes": [{"name": "A", "replicas": 0}]}, "not an overlay"),
        ({"nodes": [{"name": "A", "extra": 0}]}, "not an overlay"),
        ({}, "not an overlay"),
    ],
)
def test_an_overlay_with_a_cycle_gap_or_typo_is_refused_by_name(table: dict[str, object], why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        parse_overlay(table)


@given(st.integers(2, 30), st.integers(0, 2**32))
@few
def test_every_tree_is_accepted_and_every_extra_link_is_a_cycle(size: int, seed: int) -> None:
    rng = random.Random(seed)
    names = [str(at) for at in range(size)]
    links = [(names[at], names[rng.randrange(at)]) for at in range(1, size)]
    overlay = OverlayTree.build(dict.fromkeys(names, 1), links)
    one, other = rng.sample(names, 2)
    way = overlay.path(one, other)
    assert all(end in overlay.neighbours[begin] for begin, end in pairwise(way))
    with pytest.raises(ConfigError):
        OverlayTree.build(dict.fromkeys(names, 1), [*links, (one, other)])
    with pytest.raises(ConfigError, match="gap"):
        OverlayTree.build(dict.fromkeys(names, 1), links[1:])
