"""Histograms of edges, and what they say of costs: the same as all interactions in a row."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from veilcast.lab.models.broker_shares import cost_quantile, hop_histogram, mean_cost
from veilcast.lab.models.broker_tree import grow_tree


@given(st.lists(st.integers(0, 60), min_size=1, max_size=50), st.floats(0.01, 1))
def test_means_and_quantiles_are_those_of_all_interactions_in_a_row(edges: list[int], share: float) -> None:
    costs = [3 ** (edge + 1) for edge in range(61)]
    counted = np.bincount(edges).astype(float)
    row = sorted(costs[edge] for edge in edges)
    assert mean_cost(counted, costs) == pytest.approx(sum(row) / len(row))
    assert cost_quantile(counted, costs, share) == row[int(np.ceil(share * len(row) - 1e-9)) - 1]


def test_a_histogram_counts_every_interaction_once() -> None:
    overlay = grow_tree(40, 2, "geometric", 1)
    matrix = np.random.default_rng(1).integers(0, 5, (40, 40))
    counted = hop_histogram(matrix, overlay.edges)
    assert counted.sum() == matrix.sum()
    assert counted[0] == np.trace(matrix)
