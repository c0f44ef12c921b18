"""Cadence on made-up wires: constant cells, of which some nodes may be late, or have other sizes."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.stats import ks_2samp

from support.array_observer import count_gaps, summarise_windows
from support.watched_meshes import Mask, expect_nothing, mask
from veilcast.lab.attack.classifiers import fit_linear
from veilcast.lab.attack.observer.cadence import (
    WINDOW_FEATURES,
    compare_distributions,
    extract_features,
    score_cadence,
    summarise_groups,
)
from veilcast.lab.attack.observer.reduced_cells import ReducedCells
from veilcast.lab.attack.registry import CADENCE, WINDOWS
from veilcast.lab.measure.ranking import auc
from veilcast.lab.models.graph import small_world

NODES, PERIOD_US, CELLS = 60, 250_000, 100
Cells = tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.int32], NDArray[np.int64]]


def wires(seed: int, late_us: float = 0, longer: int = 0) -> tuple[Cells, Mask]:
    """A cell for every slot, at any moment of it; a quarter of the nodes has work to do, and in a tenth of its slots is
    late or sends something longer."""
    rng, graph = np.random.default_rng(seed), small_world(NODES, 4, 0.2, seed)
    u, v = graph.edges()
    src, dst = (np.repeat(ends, CELLS).astype(np.int32) for ends in (np.append(u, v), np.append(v, u)))
    busy = mask(rng.choice(NODES, NODES // 4, replace=False), NODES)
    works = busy[src] & (rng.random(len(src)) < 0.1)
    slots = np.tile(np.arange(CELLS), len(src) // CELLS)
    t_us = slots * PERIOD_US + rng.integers(PERIOD_US // 8, size=len(src)) + (works * late_us).astype(np.int64)
    return (t_us, src, dst, np.where(works, 1200 + longer, 1200)), busy


@pytest.mark.parametrize(("late_us", "longer", "least"), [(20_000, 0, 0.75), (60_000, 0, 0.95), (0, 1, 0.95)])
def test_a_late_node_and_one_with_longer_cells_stand_out(late_us: float, longer: int, least: float) -> None:
    """The positive control, and the null one of the same scores."""
    cells, busy = wires(1, late_us, longer)
    found = score_cadence(count_gaps(*cells), NODES)
    assert auc(found.sent, busy) > least
    expect_nothing(found.sent, busy)


def test_nothing_is_found_where_all_nodes_are_punctual() -> None:
    areas = [
        auc(getattr(score_cadence(count_gaps(*cells), NODES), way), busy)
        for cells, busy in map(wires, range(40))
        for way in ("received", "sent")
    ]
    assert np.mean(areas) == pytest.approx(0.5, abs=3 * np.std(areas) / len(areas) ** 0.5)


def test_trained_on_other_runs_it_finds_the_busy_and_nothing_in_shuffled_labels() -> None:
    def run(seed: int) -> tuple[NDArray[np.float64], Mask]:
        cells, busy = wires(seed, 20_000)
        return extract_features(summarise_windows(*cells, 10 * PERIOD_US), NODES), busy

    training = [run(seed) for seed in range(10, 16)]
    values, labels = np.vstack([value for value, _ in training]), np.concatenate([label for _, label in training])
    judged, busy = run(1)
    assert auc(fit_linear(values, labels).scores(judged), busy) > 0.9
    lost = fit_linear(values, np.random.default_rng(1).permutation(labels))
    expect_nothing(lost.scores(judged), busy)


@given(
    st.lists(st.tuples(st.integers(0, 2), st.integers(0, 6), st.integers(1, 9)), min_size=1, max_size=30), st.randoms()
)
def test_it_is_the_distance_of_kolmogorov_and_smirnov(rows: list[tuple[int, int, int]], rng: object) -> None:
    rng.shuffle(rows)  # type: ignore[attr-defined]
    group, value, count = np.array(rows).T
    found = compare_distributions(group, value, count, 3)
    for one in range(3):
        own, others = (np.repeat(value[which], count[which]) for which in (group == one, group != one))
        if not len(own) or not len(others):
            assert found[one] == 0
        else:
            weight = np.sqrt(len(own) * len(others) / (len(own) + len(others)))
            assert found[one] == pytest.approx(ks_2samp(own, others).statistic * weight)


def test_a_link_can_be_odd_among_links() -> None:
    (t_us, src, dst, size), _ = wires(3)
    strange = (src == src[0]) & (dst == dst[0])
    seen = count_gaps(np.where(strange, 2 * t_us, t_us), src, dst, size)
    _, link = np.unique(seen.src * NODES + seen.dst, return_inverse=True)
    ends = seen.src[np.argmax(compare_distributions(link, seen.gap, seen.cells, link.max() + 1)[link])]
    assert ends == src[0]


def test_a_node_with_few_cells_looks_no_stranger_than_one_with_many() -> None:
    rng = np.random.default_rng(1)
    group = np.repeat(np.arange(400), np.where(np.arange(400) % 2, 20, 500))
    found = compare_distributions(group, rng.integers(100, size=len(group)), np.ones(len(group), np.int64), 400)
    assert np.mean(found[::2]) == pytest.approx(np.mean(found[1::2]), rel=0.1)


def test_a_window_has_its_cells_gaps_and_sizes() -> None:
    t_us, size = np.array([30, 0, 10, 130, 105]), np.array([5, 9, 3, 4, 4])
    seen = summarise_windows(t_us, np.zeros(5, np.int32), np.ones(5, np.int32), size, 100)
    assert seen.window.tolist() == [0, 1]
    assert dict(zip(WINDOW_FEATURES, seen.values[0].tolist(), strict=True)) == {
        "cells": 2, "gap": 15, "gap_spread": 5, "gap_least": 10, "gap_most": 20,
        "size": 4, "size_spread": 1, "size_least": 3, "size_most": 5,
    }  # fmt: skip
    assert seen.values[1].tolist() == [2, 50, 25, 25, 75, 4, 0, 4, 4]


def test_groups_have_means_spreads_and_the_largest_of_their_rows() -> None:
    found = summarise_groups(np.array([0, 0, 2]), np.array([[1.0], [3.0], [5.0]]), 3)
    assert found.tolist() == [[2, 1, 3], [0, 0, 0], [5, 0, 5]]


def test_without_cells_all_scores_are_zero() -> None:
    none: Cells = (np.empty(0, np.int64), np.empty(0, np.int32), np.empty(0, np.int32), np.empty(0, np.int64))
    assert score_cadence(count_gaps(*none), 2).sent.tolist() == [0, 0]
    assert extract_features(summarise_windows(*none, 10), 2).tolist() == [[0] * 6 * len(WINDOW_FEATURES)] * 2


@pytest.mark.parametrize("on_spark", [False, pytest.param(True, marks=pytest.mark.all_only)])
def test_a_table_gives_the_same_counts_and_windows(on_spark: bool, request: pytest.FixtureRequest) -> None:
    rng = np.random.default_rng(7)
    parts, counts, windows = [], {}, {}
    for run in ("a", "b"):
        # Times that coincide, and links with a single cell.
        t_us, size = rng.integers(3_000_000, size=300) // 1500 * 1500, rng.integers(1, 4, size=300)
        src, dst = (rng.integers(*ends, size=300).astype(np.int32) for ends in ((0, 5), (5, 8)))
        columns = {"t_us": t_us, "src": [f"n{node}" for node in src], "dst": [f"n{node}" for node in dst], "size": size}
        parts.append(pa.table({"run": [run] * 300, "epoch": np.zeros(300, np.int64), **columns}))
        for u, v, gap, length, count in zip(*count_gaps(t_us, src, dst, size), strict=True):
            counts[run, f"n{u}", f"n{v}", gap, length] = count
        for u, v, window, values in zip(*summarise_windows(t_us, src, dst, size, 1_000_000), strict=True):
            windows[run, f"n{u}", f"n{v}", window] = values[0], values[3], values[8]
    cells = pa.concat_tables(parts)
    table = request.getfixturevalue("spark").createDataFrame(cells) if on_spark else cells
    reduced = ReducedCells({"cells": table}, {CADENCE, WINDOWS})
    gaps, sums = (
        found if isinstance(found, pa.Table) else found.toArrow() for found in (reduced.gaps, reduced.windows)
    )
    keys = ("run", "src", "dst", "gap", "size")
    assert {tuple(row[key] for key in keys): row["cells"] for row in gaps.to_pylist()} == counts
    by_window: dict[tuple[object, ...], dict[str, float]] = {}
    for row in sums.to_pylist():
        link = (row["run"], row["src"], row["dst"], row["window_us"] // 1_000_000)
        by_window.setdefault(link, {})[row["feature"]] = row["value"]
    assert {key: (each["follows"], each["gap_least"], each["size_most"]) for key, each in by_window.items()} == windows
