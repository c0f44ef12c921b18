from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from veilcast.lab.attack.server.tag_inference import order_publications
from veilcast.lab.measure.relay_success import measure_order
from veilcast.lab.models.prefix_tags import draw_prefix_tags


def test_values_are_sorted_by_ranges_that_lie_across_the_forks() -> None:
    """The positive control."""
    for seed in range(5):
        drawn = draw_prefix_tags(7, 150, 200, 0.2, seed)
        assert measure_order(order_publications(drawn.asked, drawn.ranges), drawn.value) > 0.999


def test_shuffled_values_are_not_sorted() -> None:
    """The null control."""
    found = []
    for seed in range(20):
        drawn = draw_prefix_tags(7, 80, 80, 0.2, seed)
        value = np.random.default_rng(seed).permutation(drawn.value)
        found.append(measure_order(order_publications(drawn.asked, drawn.ranges), value))
    # The mean of an absolute correlation of so many pairs.
    assert np.mean(found) == pytest.approx((2 / np.pi / 80) ** 0.5, abs=0.05)


def test_without_ranges_forks_may_be_turned_either_way() -> None:
    alone = [
        measure_order(
            order_publications(draw_prefix_tags(7, 80, 0, 0.2, seed).asked, ()),
            draw_prefix_tags(7, 80, 0, 0.2, seed).value,
        )
        for seed in range(8)
    ]
    assert 0.2 < np.mean(alone) < 0.8


@given(st.integers(0, 1000))
def test_equal_values_share_a_place_and_others_do_not(seed: int) -> None:
    drawn = draw_prefix_tags(5, 30, 10, 0.4, seed)
    place = order_publications(drawn.asked, drawn.ranges)
    assert np.unique(place).size == np.unique(drawn.value).size
    assert np.unique(np.column_stack([place, drawn.value]), axis=0).shape[0] == np.unique(drawn.value).size
