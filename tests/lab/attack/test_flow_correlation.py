"""Flow correlation on volumes alone: notes that travel down a mesh, under traffic of all kinds."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.signal import correlate

from support.array_observer import remove_rhythm
from support.watched_meshes import Mask, expect_nothing, mask
from veilcast.lab.attack.observer.flow_correlation import (
    FlowSums,
    correlate_sums,
    correlations,
    find_rhythm,
    score_flows,
)
from veilcast.lab.measure.ranking import auc
from veilcast.lab.models.graph import small_world
from veilcast.lab.models.mesh import MeshTree, build_mesh, draw_roles

NODES, BINS, LAGS = 120, 400, 12


def volumes(seed: int, notes: float, noise: float) -> tuple[MeshTree, Mask, NDArray[np.float64], NDArray[np.float64]]:
    """A mesh, and who reads; what leaves and reaches each node if notes are published at random, a hop takes a bin, and
    there is other traffic."""
    rng, graph = np.random.default_rng(seed), small_world(NODES, 4, 0.2, seed)
    publisher, subscribers = draw_roles(graph, 0.2, seed)
    mesh = build_mesh(graph, publisher, subscribers, seed)
    published = rng.random(BINS) < notes
    src, dst = mesh.links()
    hops = {int(mesh.publisher): 0}
    while len(hops) <= len(src):
        hops |= {int(v): hops[int(u)] + 1 for u, v in zip(src, dst, strict=True) if int(u) in hops}
    leaving, arriving = (rng.poisson(noise, (NODES, BINS)).astype(np.float64) for _ in range(2))
    for u, v in zip(src.tolist(), dst.tolist(), strict=True):
        passed = np.roll(published, hops[u])
        leaving[u] += passed
        arriving[v] += passed
    return mesh, mask(subscribers, NODES), leaving, arriving


def test_publisher_and_members_are_found_through_hops_and_noise() -> None:
    """The positive control, and the null one of the same scores."""
    mesh, reads, leaving, arriving = volumes(1, 0.1, 0.3)
    found = score_flows(leaving, arriving, LAGS)
    assert np.argmax(found.leads) == mesh.publisher
    others = np.arange(NODES) != mesh.publisher
    assert auc(found.follows[others], mask(mesh.members, NODES)[others]) > 0.95
    readers = reads[others]
    assert auc(found.follows[others], readers) > 0.75
    expect_nothing(found.follows[others], readers)


def test_constant_volumes_tell_nothing() -> None:
    found = score_flows(np.full((9, 50), 4.0), np.full((9, 50), 4.0), 5)
    assert not found.leads.any()
    assert not found.follows.any()


def test_volumes_that_have_nothing_to_do_with_one_another_tell_nothing() -> None:
    areas = []
    for seed in range(30):
        _, reads, leaving, arriving = volumes(seed, 0.0, 1.0)
        areas.append(auc(score_flows(leaving, arriving, LAGS).follows, reads))
    assert np.mean(areas) == pytest.approx(0.5, abs=3 * np.std(areas) / len(areas) ** 0.5)


@given(st.integers(1, 10**6), st.integers(2, 40), st.integers(0, 50))
def test_it_is_the_largest_normalised_cross_correlation(seed: int, bins: int, lags: int) -> None:
    rng = np.random.default_rng(seed)
    leaving, arriving = rng.integers(4, size=(2, bins)).astype(np.float64), rng.normal(size=(3, bins))
    found, at = correlations(leaving, arriving, lags)
    for u, v in np.ndindex(2, 3):
        if not leaving[u].std():
            assert found[u, v] == 0
            continue
        a, b = ((row - row.mean()) / row.std() for row in (leaving[u], arriving[v]))
        whole = correlate(b, a, method="fft")[bins - 1 :][: lags + 1] / bins
        assert found[u, v] == pytest.approx(whole.max())
        assert whole[at[u, v]] == pytest.approx(whole.max())


def test_heartbeats_hide_nothing() -> None:
    mesh, _, leaving, arriving = volumes(4, 0.1, 0.0)
    beats = 9.0 * (np.arange(BINS) % 10 == np.random.default_rng(4).integers(10, size=(NODES, 1)))
    bare, hidden, again = (
        score_flows(out, into, LAGS).leads
        for out, into in (
            (leaving, arriving),
            (leaving + beats, arriving + beats),
            (remove_rhythm(leaving + beats, 10), remove_rhythm(arriving + beats, 10)),
        )
    )
    assert np.argmax(bare) == np.argmax(again) == mesh.publisher != np.argmax(hidden)


def test_a_rhythm_is_taken_away_and_what_is_beside_it_stays() -> None:
    beat = np.tile([4.0, 0.0, 1.0], 5)
    assert not remove_rhythm(np.array([beat]), 3).any()
    beat[7] += 2
    assert np.flatnonzero(remove_rhythm(np.array([[*beat, 9.0]]), 3)).tolist() == [7]


def test_less_than_a_period_has_no_rhythm_and_tells_nothing() -> None:
    short = remove_rhythm(np.array([[4.0, 0.0], [1.0, 2.0]]), 3)
    assert all(not found.any() for found in score_flows(short, short, LAGS))


def test_the_lag_is_how_long_the_way_takes() -> None:
    mesh, _, leaving, arriving = volumes(3, 0.1, 0.0)
    _, at = correlations(leaving, arriving, LAGS)
    child = mesh.links()[1][mesh.links()[0] == mesh.publisher][0]
    assert at[mesh.publisher, child] == 0
    below = mesh.links()[1][mesh.links()[0] == child]
    assert (at[mesh.publisher, below] == 1).all()


@given(st.integers(1, 10**6), st.integers(0, 12), st.lists(st.integers(1, 39), max_size=4, unique=True))
def test_a_record_cut_anywhere_gives_the_same_bits(seed: int, lags: int, cuts: list[int]) -> None:
    rng, bins = np.random.default_rng(seed), 40
    leaving, arriving = (rng.integers(-9, 2_000, size=(nodes, bins)).astype(np.float64) for nodes in (2, 3))
    behind = np.pad(arriving, ((0, 0), (0, lags)))
    edges = [0, *sorted(cuts), bins]
    parts = [
        FlowSums.of_stretch(leaving[:, first:end], behind[:, first : end + lags], first, bins, lags)
        for first, end in pairwise(edges)
    ]
    carried = [FlowSums.from_bytes(part.to_bytes(), 3, bins, lags) for part in parts]
    found = correlate_sums(FlowSums.add(carried), bins)
    assert all(map(np.array_equal, found, correlations(leaving, arriving, lags)))


@given(st.lists(st.integers(0, 5), min_size=1, max_size=30))
def test_twice_the_median_is_found_from_counts_without_the_zeros(values: list[int]) -> None:
    known, counts = np.unique([value for value in values if value], return_counts=True)
    assert find_rhythm(known.astype(np.int64), counts, len(values)) == 2 * np.median(values)
