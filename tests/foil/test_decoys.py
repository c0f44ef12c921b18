"""Decoys have the shape and roundness of the true interest, never equal it, and are always the same."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from veilcast.crypto.secret import Secret
from veilcast.foil.config import AttributeConfig, FoilConfig
from veilcast.foil.decoys import DecimalGrid, make_decoys
from veilcast.foil.topic_names import InterestArea
from veilcast.topics import Integers, Reals, Schema, Strings
from veilcast.topics.dyadic import cover_range

KEY = Secret(bytes(range(32)))
LINE = Schema((Integers("x", 0, 999, 10),))
TOP = 999


def drawn(
    area: InterestArea, k_s: int = 5, schema: Schema = LINE, key: Secret = KEY, **told: AttributeConfig
) -> list[InterestArea]:
    return make_decoys(area, "t", schema, FoilConfig(k_s=k_s, attributes=told), key)


def ranges(first: int, last: int, k_s: int = 5, key: Secret = KEY) -> list[tuple[int, int]]:
    """Decoy ranges of one attribute."""
    return ranges_of(drawn(((first, last),), k_s, key=key))


def ranges_of(areas: list[InterestArea]) -> list[tuple[int, int]]:
    sides = [area[0] for area in areas]
    assert all(isinstance(side, tuple) for side in sides)
    return [side for side in sides if isinstance(side, tuple)]


@given(st.integers(1, 997), st.data())
def test_a_decoy_range_keeps_its_width_and_its_free_ends(first: int, data: st.DataObject) -> None:
    last = data.draw(st.integers(first, 998))
    for low, high in ranges(first, last):
        assert high - low == last - first
        assert low >= 1
        assert high <= TOP
        assert (low, high) != (first, last)


@given(st.integers(0, 998))
def test_a_decoy_range_keeps_its_end_of_the_domain(edge: int) -> None:
    for low, high in ranges(0, edge):
        assert low == 0
        assert 0 <= high < TOP
    for low, high in ranges(edge + 1, TOP):
        assert high == TOP
        assert low > 0


def test_a_broker_that_bets_on_the_fewest_filters_is_right_no_more_often_than_by_chance() -> None:
    """People choose round ranges: of 64 cells that begin at a multiple of 64, and others."""
    for width, step in ((64, 64), (32, 16), (100, 100)):
        wins = total = 0.0
        for start in range(step, 900 - width, step):
            true = (start, start + width - 1)
            sides = [true, *ranges(*true, k_s=3)]
            counts = [len(cover_range(low, high, 10)) for low, high in sides]
            fewest = [place for place, count in enumerate(counts) if count == min(counts)]
            wins += (0 in fewest) / len(fewest)
            total += 1
        assert wins / total < 1.3 / 4, (width, step)


def test_a_broker_that_bets_on_the_finest_filter_is_right_no_more_often_than_by_chance() -> None:
    """If decoys were rounder than the true range, the smallest piece would belong to the truth."""
    for edges in ([(0, end - 1) for end in range(50, 950, 50)], [(start, TOP) for start in range(50, 950, 50)]):
        wins = total = 0.0
        for true in edges:
            for number in range(4):
                sides = [true, *ranges(*true, k_s=3, key=Secret(number.to_bytes(32, "big")))]
                levels = [max(level for level, _ in cover_range(low, high, 10)) for low, high in sides]
                finest = [place for place, level in enumerate(levels) if level == max(levels)]
                wins += (0 in finest) / len(finest)
                total += 1
        assert wins / total < 0.33, edges[0]


def decimal_roundness(first: int, last: int) -> int:
    """The largest round number that divides the range's ends, with the upper one read as 199 or as 200."""
    steps = (500, 200, 100, 50, 20, 10, 5, 2, 1)
    free = [(first,)] * (first > 0) + [(last, last + 1)] * (last < TOP)
    return next(step for step in steps if all(any(value % step == 0 for value in ends) for ends in free))


@pytest.mark.parametrize("k_s", [3, 9])
@pytest.mark.parametrize("bet", [max, min], ids=["on the roundest", "on the least round"])
def test_a_broker_that_bets_on_round_decimals_is_right_no_more_often_than_by_chance(
    bet: Callable[[list[int]], int], k_s: int
) -> None:
    """People choose 100 to 199. Beside decoys that are round in binary alone, this bet finds the truth in .72 to 1."""
    wins = total = 0.0
    inner = [
        (start, start + width - 1)
        for width, step in ((100, 100), (50, 50), (100, 50), (10, 10))
        for start in range(step, 900 - width, step)
    ]
    outer = [(0, end) for end in range(50, 950, 50)] + [(start, TOP) for start in range(50, 950, 50)]
    for number, true in enumerate(inner + outer):
        sides = [true, *ranges(*true, k_s=k_s, key=Secret(number.to_bytes(32, "big")))]
        assert len(sides) == k_s + 1
        marks = [decimal_roundness(*side) for side in sides]
        chosen = [place for place, mark in enumerate(marks) if mark == bet(marks)]
        wins += (0 in chosen) / len(chosen)
        total += 1
    assert wins / total < 1.3 / (k_s + 1)


@given(st.integers(1, 998), st.data())
def test_a_grid_of_whole_numbers_agrees_with_division(first: int, data: st.DataObject) -> None:
    last = data.draw(st.integers(first, 998))
    assert DecimalGrid(Integers("x", 0, 999, 10), 10).step_of(first, last) == decimal_roundness(first, last)


@pytest.mark.parametrize(("low", "high", "step"), [(20.5, 21.0, 0.5), (20.0, 30.0, 10.0), (12.25, 77.5, 0.05)])
def test_decoys_of_real_ranges_lie_on_the_decimal_step_of_the_true_range(low: float, high: float, step: float) -> None:
    domain = Reals("x", 0.0, 100.0, 12)
    true, cell = (domain.cell(low), domain.cell(high)), 100.0 / 4096
    sides = ranges_of(drawn((true,), schema=Schema((domain,))))
    assert len(sides) == 5
    for side in sides:
        for end in side:
            middle = (end + 0.5) * cell
            assert abs(round(middle / step) * step - middle) <= cell
        assert abs(side[1] - side[0] - true[1] + true[0]) <= 1


def test_a_decoy_can_be_anywhere_in_the_domain() -> None:
    starts: Counter[int] = Counter()
    for number in range(200):
        key = Secret(number.to_bytes(32, "big"))
        for low, _ in ranges(37, 60, k_s=4, key=key):
            starts[low // 250] += 1
    assert all(starts[part] > 100 for part in range(4))


def test_equal_interests_have_equal_decoys_and_others_differ() -> None:
    assert drawn(((5, 9),)) == drawn(((5, 9),))
    assert drawn(((5, 9),)) != drawn(((5, 10),))
    assert drawn(((5, 9),)) != drawn(((5, 9),), key=Secret(bytes(32)))


def test_unconstrained_attributes_stay_free_and_strings_become_other_strings() -> None:
    schema = Schema((Strings("kind"), Integers("x", 0, 1023, 10)))
    words = AttributeConfig(values=("a", "b", "c", "d"))
    found = drawn(("a", None), k_s=3, schema=schema, kind=words)
    assert {area[0] for area in found} == {"b", "c", "d"}
    assert {area[1] for area in found} == {None}
    unknown = drawn(("a", None), k_s=3, schema=schema)
    assert len({area[0] for area in unknown}) == 3
    paper = FoilConfig(k_s=3, profile="paper")
    assert make_decoys(("a", None), "t", schema, paper, KEY) == [], "in plain text a word that was made up shows"


def test_there_are_fewer_decoys_if_the_shape_has_few_places() -> None:
    assert drawn(((0, TOP),)) == []
    assert drawn((None,)) == []
    assert drawn(((1, 998),)) == []
