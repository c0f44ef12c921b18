"""The time to wait for an answer follows the time that most answers take."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from veilcast.machine import Address
from veilcast.tree.streams import ANSWERS_KEPT, PATIENCE_FACTOR, AnswerTimes

NODES = [Address(f"n{number}") for number in range(2 * ANSWERS_KEPT)]


def paced(*took: int) -> AnswerTimes:
    """Times with one answer of each node."""
    pace = AnswerTimes(10, 1_000)
    for node, each in zip(NODES, took, strict=False):
        pace.record(node, each)
    return pace


def test_the_wait_is_long_without_answers_and_short_after_quick_ones() -> None:
    assert paced().patience_us == 1_000
    assert paced(1).patience_us == 10
    assert paced(1, 900, 900, 900, 900).patience_us == 1_000


def test_one_slow_node_does_not_lengthen_the_wait() -> None:
    pace = paced(1, 1, 1)
    for took in range(100, 1_000, 10):
        pace.record(NODES[3], took)
        assert pace.patience_us == 10


@given(st.integers(3, ANSWERS_KEPT), st.integers(100, 10**6), st.randoms(use_true_random=False))
def test_a_slow_quarter_of_the_nodes_does_not_lengthen_the_wait(nodes: int, slow: int, rng: object) -> None:
    took = [slow] * (nodes // 4) + [2] * (nodes - nodes // 4)
    rng.shuffle(took)  # type: ignore[attr-defined]
    assert paced(*took).patience_us == 10


@given(st.integers(1, 10**6), st.integers(1, 30))
def test_if_all_nodes_are_slow_the_wait_grows_with_them(took: int, nodes: int) -> None:
    pace = AnswerTimes(0, 10**9)
    for node in NODES[:nodes]:
        pace.record(node, took)
        assert pace.usual_us == took
        assert pace.patience_us == PATIENCE_FACTOR * took


@given(st.lists(st.integers(0, 10**9), max_size=30))
def test_the_wait_stays_within_its_bounds(took: list[int]) -> None:
    assert 10 <= paced(*took).patience_us <= 1_000


def test_the_number_of_remembered_answers_is_bounded() -> None:
    pace = paced(*[1] * ANSWERS_KEPT, *[100] * ANSWERS_KEPT)
    assert pace.patience_us == PATIENCE_FACTOR * 100
