"""How long is waited follows how long most answers took."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from veilcast.machine import Address
from veilcast.tree.streams import ANSWERS_KEPT, PATIENCE_FACTOR, AnswerTimes

NODES = [Address(f"n{number}") for number in range(2 * ANSWERS_KEPT)]


def paced(*took: int) -> AnswerTimes:
    """One answer of each node."""
    pace = AnswerTimes(10, 1_000)
    for node, each in zip(NODES, took, strict=False):
        pace.record(node, each)
    return pace


def test_who_knows_nothing_waits_long_and_who_gets_quick_answers_does_not() -> None:
    assert paced().patience_us == 1_000
    assert paced(1).patience_us == 10
    assert paced(1, 900, 900, 900, 900).patience_us == 1_000


def test_one_slow_node_is_waited_for_no_longer_however_often_it_answers() -> None:
    pace = paced(1, 1, 1)
    for took in range(100, 1_000, 10):
        pace.record(NODES[3], took)
        assert pace.patience_us == 10


@given(st.integers(3, ANSWERS_KEPT), st.integers(100, 10**6), st.randoms(use_true_random=False))
def test_a_quarter_who_are_slow_make_nobody_wait_for_others(nodes: int, slow: int, rng: object) -> None:
    took = [slow] * (nodes // 4) + [2] * (nodes - nodes // 4)
    rng.shuffle(took)  # type: ignore[attr-defined]
    assert paced(*took).patience_us == 10


@given(st.integers(1, 10**6), st.integers(1, 30))
def test_where_all_are_slow_each_is_waited_for_some_times_as_long(took: int, nodes: int) -> None:
    pace = AnswerTimes(0, 10**9)
    for node in NODES[:nodes]:
        pace.record(node, took)
        assert pace.usual_us == took
        assert pace.patience_us == PATIENCE_FACTOR * took


@given(st.lists(st.integers(0, 10**9), max_size=30))
def test_it_stays_within_its_bounds(took: list[int]) -> None:
    assert 10 <= paced(*took).patience_us <= 1_000


def test_of_so_many_nodes_the_last_answer_is_remembered() -> None:
    pace = paced(*[1] * ANSWERS_KEPT, *[100] * ANSWERS_KEPT)
    assert pace.patience_us == PATIENCE_FACTOR * 100
