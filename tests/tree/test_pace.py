"""How long is waited follows how long most answers took."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from veilcast.machine import Address
from veilcast.tree.pace import KEPT, TIMES, Pace

NODES = [Address(f"n{number}") for number in range(2 * KEPT)]


def paced(*took: int) -> Pace:
    """One answer of each node."""
    pace = Pace(10, 1_000)
    for node, each in zip(NODES, took, strict=False):
        pace.note(node, each)
    return pace


def test_who_knows_nothing_waits_long_and_who_gets_quick_answers_does_not() -> None:
    assert paced().us == 1_000
    assert paced(1).us == 10
    assert paced(1, 900, 900, 900, 900).us == 1_000


def test_one_slow_node_is_waited_for_no_longer_however_often_it_answers() -> None:
    pace = paced(1, 1, 1)
    for took in range(100, 1_000, 10):
        pace.note(NODES[3], took)
        assert pace.us == 10


@given(st.integers(3, KEPT), st.integers(100, 10**6), st.randoms(use_true_random=False))
def test_a_quarter_who_are_slow_make_nobody_wait_for_others(nodes: int, slow: int, rng: object) -> None:
    took = [slow] * (nodes // 4) + [2] * (nodes - nodes // 4)
    rng.shuffle(took)  # type: ignore[attr-defined]
    assert paced(*took).us == 10


@given(st.integers(1, 10**6), st.integers(1, 30))
def test_where_all_are_slow_each_is_waited_for_some_times_as_long(took: int, nodes: int) -> None:
    pace = Pace(0, 10**9)
    for node in NODES[:nodes]:
        pace.note(node, took)
        assert pace.usual_us == took
        assert pace.us == TIMES * took


@given(st.lists(st.integers(0, 10**9), max_size=30))
def test_it_stays_within_its_bounds(took: list[int]) -> None:
    assert 10 <= paced(*took).us <= 1_000


def test_of_so_many_nodes_the_last_answer_is_remembered() -> None:
    pace = paced(*[1] * KEPT, *[100] * KEPT)
    assert pace.us == TIMES * 100
