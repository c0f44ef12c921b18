from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from veilcast.errors import ConfigError
from veilcast.lab.measure.definitions import (
    measure_publisher,
    measure_subscription,
    measure_topic_subscriber,
    measure_topic_subscribers,
)

HONEST = np.array([True, True, True, True, False])


def test_a_blind_attacker_reaches_exactly_the_bounds() -> None:
    nothing, reads = np.zeros(5), np.array([True, False, False, False, True])
    for found in (measure_publisher(nothing, 2, HONEST), measure_topic_subscriber(nothing, reads, HONEST)):
        assert found == pytest.approx((1 / 4, 1 / 4, 1 / 4))
        assert found.holds
    equal = np.array([[True, False, False], [False, True, False], [False, False, True]])
    assert measure_subscription(np.zeros((3, 3)), equal) == pytest.approx((1 / 3, 1 / 3, 1 / 3))


def test_a_perfect_attacker_breaks_all_three_definitions() -> None:
    reads = np.array([True, False, True, False, False])
    found = measure_publisher(np.eye(5)[2], 2, HONEST), measure_topic_subscriber(reads * 1.0, reads, HONEST)
    for reached in (*found, measure_topic_subscribers(reads * 1.0, reads, HONEST)):
        assert reached.probability == 1
        assert not reached.holds


def test_a_coalition_does_not_name_its_own() -> None:
    scores, reads = np.array([0.0, 1, 0, 0, 9]), np.array([False, True, False, False, True])
    assert measure_publisher(scores, 1, HONEST).probability == 1
    assert measure_topic_subscriber(scores, reads, HONEST) == (1, 1 / 4, 1 / 4)
    with pytest.raises(ConfigError, match="coalition"):
        measure_publisher(scores, 4, HONEST)


def test_one_sure_hit_breaks_the_second_definition_though_the_others_hide() -> None:
    reads = np.arange(100) < 20
    scores = (np.arange(100) == 0) * 1.0
    everybody = np.ones(100, np.bool_)
    assert measure_topic_subscriber(scores, reads, everybody).probability == 1
    assert measure_topic_subscribers(scores, reads, everybody).probability == pytest.approx((1 + 19 * 19 / 99) / 20)


def test_a_reader_of_two_topics_is_half_found_by_one_of_them() -> None:
    reads = np.array([[True, True, False, False]])
    assert measure_subscription(np.array([[3.0, 0, 0, 0]]), reads) == (1 / 2, 1 / 4, 1 / 2)


def test_naming_the_most_popular_topic_is_no_attack() -> None:
    """It exceeds 1/T, and is what is reached without looking."""
    reads = np.zeros((10, 5), np.bool_)
    reads[:8, 0] = reads[8:, 3] = True
    found = measure_subscription(np.tile([1.0, 0, 0, 0, 0], (10, 1)), reads)
    assert found == pytest.approx((0.8, 0.2, 0.8))
    assert found.holds


@given(st.integers(0, 2**32 - 1))
def test_what_is_reached_is_a_probability_and_does_not_depend_on_the_scale(seed: int) -> None:
    rng = np.random.default_rng(seed)
    scores, reads = rng.integers(0, 4, (12, 6)).astype(float), rng.random((12, 6)) < 0.4
    reads[0, 0] = True
    found = measure_subscription(scores, reads)
    assert 0 <= found.probability <= 1
    assert found == measure_subscription(3 * scores - 7, reads)


def test_definitions_need_a_publisher_and_a_subscriber() -> None:
    with pytest.raises(ConfigError, match="nobody"):
        measure_subscription(np.zeros((2, 2)), np.zeros((2, 2), np.bool_))
    with pytest.raises(ConfigError, match="nobody"):
        measure_topic_subscriber(np.zeros(5), ~HONEST, HONEST)
