"""Runs over P4's brokers: the notes' numbers on small traces, the readings apart, and what is refused."""

from __future__ import annotations

import os
from pathlib import Path
from statistics import mean, median
from typing import Any

import pytest

from veilcast.errors import ConfigError
from veilcast.lab.experiment.kinds import KINDS, make_params
from veilcast.lab.runs.table import ENGINES

SMALL: dict[str, Any] = {"nodes": 400, "users": 30_000, "relations": 283_000, "interactions": 14_000}


def found(kind: str, seed: int = 0, engine: str = "kernel", **given: Any) -> dict[tuple[str, float], float]:
    small = {name: value for name, value in SMALL.items() if name in KINDS[f"brokers.{kind}"].__struct_fields__}
    params = make_params(f"brokers.{kind}", small | given)
    folder = Path(os.environ["VEILCAST_DATA"]) if "trace" in given else None
    return {(one.metric, one.step): one.value for one in ENGINES[engine](params, seed, folder)}


def test_dispersed_users_are_ten_nodes_apart_with_a_median_of_88572_shares_and_a_mean_of_millions() -> None:
    runs = [found("shares", seed, overlays=30) for seed in range(4)]
    assert mean(run["hops", 0] for run in runs) == pytest.approx(10, abs=0.7)
    assert median(run["median", 0] for run in runs) == 88_572
    assert 1e6 < median(run["mean", 0] for run in runs) < 15e6
    assert median(run["redistributed_median", 0] for run in runs) == 168
    assert all(run["mean_low", 0] < run["mean", 0] < run["mean_high", 0] for run in runs)


def test_clustered_users_are_two_nodes_apart_with_a_mean_of_about_a_thousand_shares() -> None:
    runs = [found("shares", seed, overlays=30, users_zipf=2.0) for seed in range(4)]
    assert mean(run["hops", 0] for run in runs) == pytest.approx(2.3, abs=0.2)
    assert 300 < median(run["mean", 0] for run in runs) < 2_500


def test_at_fan_out_5_the_published_939_is_near_only_if_edges_are_counted() -> None:
    complete = found("shares", fanout=5, family="complete")
    # Exactly 3563 and 1188 for users without number.
    assert complete["received", 0] == pytest.approx(3_563, rel=0.05)
    assert complete["by_edges", 0] == pytest.approx(1_188, rel=0.05)
    assert complete["mean", 0] > 4 * 939


def test_the_share_of_interactions_within_so_many_nodes_rises_to_all() -> None:
    within = [value for (metric, _), value in found("shares", fanout=5).items() if metric == "within"]
    assert within == sorted(within)
    assert within[-1] == pytest.approx(1)


def test_fifteen_byzantine_brokers_cause_more_retransmissions_than_there_are_interactions() -> None:
    given: dict[str, Any] = {"kind": "losses", "fanout": 5, "family": "complete", "overlays": 100, "counts": (5, 15)}
    plain = [found(seed=seed, **given) for seed in range(3)]
    assert 1.75 < mean(run["each", 15] for run in plain) < 2.15
    # Fewer than three times as many from three times as many brokers.
    assert mean(run["again", 15] for run in plain) < 3 * mean(run["again", 5] for run in plain)
    different = found(**given, replacement=False, byzantine_zipf=2.0)
    assert different["each", 15] == pytest.approx(3.1, abs=0.2)


def test_what_each_remedy_costs() -> None:
    given: dict[str, Any] = {"kind": "losses", "fanout": 5, "family": "complete", "overlays": 20, "counts": (15,)}
    ways = {way: found(**given, losses=way) for way in ("plain", "failover", "coded", "replicated")}
    again = {way: run["again", 15] for way, run in ways.items()}
    content = {way: run["content_tb", 15] for way, run in ways.items()}
    assert again["replicated"] == 0 < again["failover"] < again["coded"] < again["plain"]
    assert content["failover"] < content["plain"] < content["coded"] < content["replicated"]


def test_a_key_for_ten_publications_leaves_a_fifth_by_publisher_and_more_by_whoever_reads() -> None:
    given: dict[str, Any] = {
        "kind": "refresh",
        "fanout": 5,
        "overlays": 5,
        "counts": (1, 10),
        "hops_counted": "edges",
    }
    by = {owner: found(**given, key_owner=owner) for owner in ("publisher", "pair", "readers")}
    assert by["publisher"]["left", 10] == pytest.approx(0.22, abs=0.03)
    assert by["publisher"]["left", 10] < by["readers"]["left", 10] < 1
    assert by["publisher"]["left", 10] < by["pair"]["left", 10] < 1
    assert len({run["gb", 1] for run in by.values()}) == 1
    assert by["readers"]["repository_gb", 1] < by["readers"]["gb", 1] / 100


def test_a_path_of_ten_nodes_costs_what_the_recipes_send() -> None:
    path = found("path", counts=(1, 10))
    assert (path["shares", 10], path["received", 10], path["redistributed", 10]) == (88_572, 59_049, 168)
    assert found("path", counts=(3,), branches=2)["shares", 3] == 3 + 2 * 9 + 4 * 27
    less = found("path", counts=(10,), refresh_mb=1024)
    assert path["traffic_percent", 10] / less["traffic_percent", 10] == pytest.approx(less["times_less", 10]) == 5.12


def test_pairs_are_placed_better_than_by_three_phases_and_the_variation_is_as_bad_as_nothing() -> None:
    given: dict[str, Any] = {"kind": "placement", "nodes": 60, "overlays": 12}
    tree = {way: found(**given, allocation=way) for way in ("none", "phases", "once", "pairs", "told pairs")}
    sound = {way: run["sound", 0] for way, run in tree.items()}
    assert sound["none"] < sound["phases"] < sound["pairs"] <= sound["told pairs"] + 0.01
    assert sound["none"] == pytest.approx(0.571, abs=0.05)
    assert sound["told pairs"] == pytest.approx(0.877, abs=0.05)
    assert tree["none"]["bare", 0] == 1 > tree["pairs"]["bare", 0]
    anywhere = [found(**given, allocation=way, scattered=True)["sound", 0] for way in ("none", "once")]
    assert anywhere[1] < anywhere[0] + 0.03


def test_keys_are_split_and_reconstructed_and_both_take_time() -> None:
    times = found("times", engine="live", counts=(3, 10), key_bits=256)
    assert times.keys() == {(what, n) for what in ("split_ms", "reconstruct_ms") for n in (3, 10)}
    assert all(value > 0 for value in times.values())


def test_how_long_a_trace_is_does_not_depend_on_its_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    from veilcast.lab.runs.brokers import interaction_matrix

    whole = found("shares", overlays=3)
    monkeypatch.setattr(interaction_matrix, "PART_INTERACTIONS", 999)
    assert found("shares", overlays=3) == whole


@pytest.mark.skipif("VEILCAST_DATA" not in os.environ, reason="needs the data folder")
def test_real_interactions_give_about_the_same() -> None:
    real = found("shares", overlays=20, trace="facebook")
    assert real["hops", 0] == pytest.approx(found("shares", overlays=20)["hops", 0], abs=0.6)
    kept = found("refresh", fanout=5, overlays=3, counts=(1, 10), hops_counted="edges", trace="facebook")
    assert kept["left", 10] == pytest.approx(0.22, abs=0.02)


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"kind": "path"}, "counts"),
        ({"kind": "shares", "counts": (1,)}, "no parameter counts"),
        ({"kind": "path", "counts": (2, 1)}, "must rise"),
        ({"kind": "path", "counts": (0, 1)}, "must rise"),
        ({"kind": "shares", "replicas": 0}, "replicas"),
        ({"kind": "path", "counts": (1,), "refresh_mb": 0}, "refresh_mb"),
        ({"kind": "refresh", "counts": (2, 3)}, "begin with 1"),
        ({"kind": "shares", "kappa": 0.5}, "no parameter kappa"),
        ({"kind": "shares", "relations": 30_000}, "relations at least"),
    ],
)
def test_what_makes_no_sense_is_refused(given: dict[str, Any], why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        found(**given)
