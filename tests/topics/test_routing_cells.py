"""A publication lies in one routing cell, and every interest that matches it touches that cell."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from veilcast.errors import ConfigError, LocalError
from veilcast.machine import Publication
from veilcast.topics import (
    All,
    Box,
    Equal,
    Integers,
    Label,
    Range,
    Reals,
    Schema,
    Strings,
    all_cells,
    cell_of,
    cells_of,
)

FLOORS = Integers("floor", 0, 31, 5, routing=2)
TEMPS = Reals("temp", -40, 60, 12, routing=3)
HOUSE = Schema((FLOORS, Strings("class"), TEMPS, Integers("age", 0, 99, 4)))


def reading(floor: int | float, temp: float) -> Publication:
    return Publication((("topic", "house"), ("floor", floor), ("temp", temp)))


def test_a_publication_lies_in_the_cell_of_the_first_bits_of_each_routed_attribute() -> None:
    assert cell_of(reading(0, -40), HOUSE) == (0, 0)
    assert cell_of(reading(8, 9.99), HOUSE) == (1, 3)
    assert cell_of(reading(31, 60), HOUSE) == (3, 7)
    assert cell_of(reading(31, 60), Schema((Integers("floor", 0, 31, 5),))) == ()


@pytest.mark.parametrize(
    ("pairs", "word"),
    [
        ((("floor", 1),), "'temp'"),
        ((("floor", 1), ("floor", 2), ("temp", 1.0)), "exactly one"),
        ((("floor", 32), ("temp", 1.0)), "from 0 to 31"),
        ((("floor", "one"), ("temp", 1.0)), "integer"),
    ],
)
def test_a_publication_that_has_no_cell_or_several_is_refused(pairs: tuple[tuple[str, int], ...], word: str) -> None:
    with pytest.raises(LocalError, match=word):
        cell_of(Publication(pairs), HOUSE)


def test_an_interest_touches_the_cells_that_its_ranges_touch_and_all_where_it_says_nothing() -> None:
    assert cells_of(Label("house"), HOUSE) == all_cells(HOUSE)
    assert len(all_cells(HOUSE)) == 32
    assert cells_of(Box({"floor": (7, 8), "temp": (0, 1)}), HOUSE) == ((0, 3), (1, 3))
    assert len(cells_of(Range("floor", None, 0), HOUSE)) == 8
    both = All(Range("floor", 0, 20), Range("floor", 10, None), Range("temp", 59, None))
    assert cells_of(both, HOUSE) == ((1, 7), (2, 7))
    assert cells_of(Range("age", 1, 2), HOUSE) == all_cells(HOUSE), "not routed by"
    assert cells_of(Label("house"), Schema()) == all_cells(Schema()) == ((),)


@pytest.mark.parametrize(
    "interest", [Range("floor", 32, None), All(Range("floor", 0, 1), Range("floor", 30, 31)), Equal("floor", "one")]
)
def test_an_interest_that_nothing_can_match_is_refused(interest: Range | All | Equal) -> None:
    with pytest.raises(LocalError, match="'floor'"):
        cells_of(interest, HOUSE)


def test_a_domain_that_does_not_fill_its_bits_has_only_the_cells_it_reaches() -> None:
    assert all_cells(Schema((Integers("day", 1, 5, 3, routing=3),))) == ((0,), (1,), (2,), (3,), (4,))


@st.composite
def schemas(draw: st.DrawFn) -> Schema:
    low, span = draw(st.integers(-(2**40), 2**40)), draw(st.integers(1, 20) | st.integers(1, 2**40))
    bits = draw(st.integers(1, min(52, span.bit_length())))
    ages = Integers("age", low, low + span, bits, draw(st.integers(0, min(4, bits))))
    start, bits = draw(st.floats(-1e9, 1e9)), draw(st.integers(1, 20))
    temps = Reals("temp", start, start + draw(st.floats(1.0, 1e9)), bits, draw(st.integers(0, min(4, bits))))
    return Schema((ages, temps))


@given(schemas(), st.data())
def test_a_matching_publication_lies_in_a_cell_that_the_interest_touches(schema: Schema, data: st.DataObject) -> None:
    ages, temps = schema.domains
    assert isinstance(ages, Integers)
    assert isinstance(temps, Reals)
    some = st.lists(st.integers(ages.low, ages.high), min_size=2, max_size=2).map(sorted)
    warm = st.lists(st.floats(temps.low, temps.high), min_size=2, max_size=2).map(sorted)
    (age, older), (temp, warmer) = data.draw(some), data.draw(warm)
    near = [x for x in (temp, math.nextafter(temp, math.inf), warmer) if x <= temps.high]
    publication = Publication(
        (("age", data.draw(st.sampled_from([age, older]))), ("temp", data.draw(st.sampled_from(near))))
    )
    is_open = data.draw(st.booleans()) and age < older
    interest = All(Range("age", age, older, low_open=is_open), Range("temp", temp, warmer))
    place = cell_of(publication, schema)
    assert place in all_cells(schema)
    assert len(all_cells(schema)) <= 256
    try:
        touched = cells_of(interest, schema)
    except LocalError:
        touched = ()
    assert set(touched) <= set(all_cells(schema))
    if interest.matches(publication):
        assert place in touched


@pytest.mark.parametrize("routing", [-1, 6, True, 1.5])
def test_routing_is_by_some_of_the_bits(routing: int) -> None:
    with pytest.raises(ConfigError, match="routing of 'floor' must be 0 to its bits, 5"):
        Integers("floor", 0, 31, 5, routing=routing)


def test_a_topic_is_cut_into_256_cells_at_most() -> None:
    Schema((Reals("x", 0, 1, 8, routing=4), Reals("y", 0, 1, 8, routing=4)))
    with pytest.raises(ConfigError, match="at most 8 bits"):
        Schema((Reals("x", 0, 1, 8, routing=5), Reals("y", 0, 1, 8, routing=4)))
