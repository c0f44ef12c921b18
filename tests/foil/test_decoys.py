"""Decoys: of the shape of what is meant, as round, never what is meant, and always the same."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from veilcast.crypto.secret import Secret
from veilcast.foil.config import Attribute, FoilConfig
from veilcast.foil.decoys import decoys_of
from veilcast.foil.naming import Area
from veilcast.topics import Integers, Schema, Strings
from veilcast.topics.dyadic import cover

KEY = Secret(bytes(range(32)))
LINE = Schema((Integers("x", 0, 999, 10),))
TOP = 999


def drawn(area: Area, k_s: int = 5, schema: Schema = LINE, key: Secret = KEY, **told: Attribute) -> list[Area]:
    return decoys_of(area, "t", schema, FoilConfig(k_s=k_s, attributes=told), key)


def ranges(first: int, last: int, k_s: int = 5, key: Secret = KEY) -> list[tuple[int, int]]:
    """Of one attribute."""
    sides = [area[0] for area in drawn(((first, last),), k_s, key=key)]
    assert all(isinstance(side, tuple) for side in sides)
    return [side for side in sides if isinstance(side, tuple)]


@given(st.integers(1, 997), st.data())
def test_a_range_keeps_its_width_and_touches_no_end_unless_it_did(first: int, data: st.DataObject) -> None:
    last = data.draw(st.integers(first, 998))
    for low, high in ranges(first, last):
        assert high - low == last - first
        assert low >= 1
        assert high <= TOP
        assert (low, high) != (first, last)


@given(st.integers(0, 998))
def test_a_range_that_reaches_to_an_end_keeps_reaching_there(edge: int) -> None:
    for low, high in ranges(0, edge):
        assert low == 0
        assert 0 <= high < TOP
    for low, high in ranges(edge + 1, TOP):
        assert high == TOP
        assert low > 0


def test_a_broker_that_bets_on_the_fewest_filters_is_right_no_more_often_than_by_chance() -> None:
    """People ask for round ranges: of 64 cells that begin at a multiple of 64, and others."""
    for width, step in ((64, 64), (32, 16), (100, 100)):
        wins = total = 0.0
        for start in range(step, 900 - width, step):
            true = (start, start + width - 1)
            sides = [true, *ranges(*true, k_s=3)]
            counts = [len(cover(low, high, 10)) for low, high in sides]
            fewest = [place for place, count in enumerate(counts) if count == min(counts)]
            wins += (0 in fewest) / len(fewest)
            total += 1
        assert wins / total < 0.45, (width, step)


def test_a_broker_that_bets_on_the_finest_filter_is_right_no_more_often_than_by_chance() -> None:
    """Decoys that were rounder than what is meant would leave the smallest piece to it."""
    for edges in ([(0, end - 1) for end in range(50, 950, 50)], [(start, TOP) for start in range(50, 950, 50)]):
        wins = total = 0.0
        for true in edges:
            for number in range(4):
                sides = [true, *ranges(*true, k_s=3, key=Secret(number.to_bytes(32, "big")))]
                levels = [max(level for level, _ in cover(low, high, 10)) for low, high in sides]
                finest = [place for place, level in enumerate(levels) if level == max(levels)]
                wins += (0 in finest) / len(finest)
                total += 1
        assert wins / total < 0.33, edges[0]


def test_the_place_of_a_decoy_is_anywhere() -> None:
    starts: Counter[int] = Counter()
    for number in range(200):
        key = Secret(number.to_bytes(32, "big"))
        for low, _ in ranges(37, 60, k_s=4, key=key):
            starts[low // 250] += 1
    assert all(starts[part] > 100 for part in range(4))


def test_the_same_interest_has_the_same_decoys_and_another_has_others() -> None:
    assert drawn(((5, 9),)) == drawn(((5, 9),))
    assert drawn(((5, 9),)) != drawn(((5, 10),))
    assert drawn(((5, 9),)) != drawn(((5, 9),), key=Secret(bytes(32)))


def test_what_is_not_asked_for_stays_unasked_and_words_become_other_words() -> None:
    schema = Schema((Strings("kind"), Integers("x", 0, 1023, 10)))
    words = Attribute(values=("a", "b", "c", "d"))
    found = drawn(("a", None), k_s=3, schema=schema, kind=words)
    assert {area[0] for area in found} == {"b", "c", "d"}
    assert {area[1] for area in found} == {None}
    unknown = drawn(("a", None), k_s=3, schema=schema)
    assert len({area[0] for area in unknown}) == 3
    paper = FoilConfig(k_s=3, profile="paper")
    assert decoys_of(("a", None), "t", schema, paper, KEY) == [], "in plain text a word that was made up shows"


def test_where_there_are_no_others_of_a_shape_there_are_fewer() -> None:
    assert drawn(((0, TOP),)) == []
    assert drawn((None,)) == []
    assert drawn(((1, 998),)) == []
