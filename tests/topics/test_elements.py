"""Elements: injective, canonical, complete; and exact where the resolution is."""

from __future__ import annotations

import itertools
from unittest.mock import patch

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from support.matching_law import (
    ExpectedDelivery,
    MatchingCase,
    check_deliveries,
    deliveries_by_definition,
    matching_cases,
)
from veilcast.errors import LocalError
from veilcast.machine import Publication, Value
from veilcast.topics import (
    All,
    Box,
    Conjunction,
    Equal,
    Integers,
    Label,
    Range,
    Reals,
    Schema,
    Strings,
    coarse_match,
    covers,
    queries,
    queries_received,
)
from veilcast.topics.elements import prefix_element, string_element

SCHEMA = Schema((Integers("age", 0, 65535, 16), Reals("temp", -40, 60, 8), Strings("class")))


def coarse_deliveries(case: MatchingCase) -> list[ExpectedDelivery]:
    asked = [queries(publication, case.schema) for publication in case.publications]
    wanted = [covers(interest, case.schema) for interest in case.interests]
    return [
        ExpectedDelivery(i, p)
        for (i, cover), (p, query) in itertools.product(enumerate(wanted), enumerate(asked))
        if coarse_match(cover, query)
    ]


@given(matching_cases())
def test_coarse_matching_keeps_the_definition(case: MatchingCase) -> None:
    check_deliveries(case, coarse_deliveries(case))


@given(matching_cases())
def test_coarse_matching_is_exact_for_strings_and_integers_at_full_resolution(case: MatchingCase) -> None:
    ages = case.schema.find("age")
    assert isinstance(ages, Integers)
    exact = Integers("age", ages.low, ages.high, (ages.high - ages.low).bit_length())
    discrete = [i for i in case.interests if all(c.attribute != "temp" for c in i.constraints)]
    assume(discrete)
    sharp = MatchingCase(Schema((exact, *case.schema.domains[1:])), discrete, case.publications)
    assert coarse_deliveries(sharp) == deliveries_by_definition(sharp)


# --- the law catches what it should -------------------------------------------------------------------------

BUSY = MatchingCase(
    SCHEMA,
    [All(Range("age", 0, 5), Range("age", 3, 9)), Range("temp", 10.1, 20.9)],
    [Publication((("age", 1), ("age", 8))), Publication((("temp", 10.2),))],
)


def test_the_law_accepts_too_much() -> None:
    check_deliveries(BUSY, [ExpectedDelivery(i, p) for i in range(2) for p in range(2)])


def test_the_law_catches_a_delivery_that_is_missing() -> None:
    with pytest.raises(AssertionError):
        check_deliveries(BUSY, coarse_deliveries(BUSY)[1:])


def test_the_law_catches_cells_that_round_inwards() -> None:
    def inwards(self: Reals, wanted: Range) -> tuple[int, int]:
        assert wanted.low is not None
        assert wanted.high is not None
        return self.cell(wanted.low) + 1, self.cell(wanted.high) - 1

    with patch.object(Reals, "cells", inwards), pytest.raises(AssertionError):
        check_deliveries(BUSY, coarse_deliveries(BUSY))


def test_the_law_catches_ranges_on_one_attribute_that_are_intersected() -> None:
    merged = BUSY._replace(interests=[Range("age", 3, 5), BUSY.interests[1]])
    with pytest.raises(AssertionError):
        check_deliveries(BUSY, coarse_deliveries(merged))


# --- the encoding -------------------------------------------------------------------------------------------

names = st.text(min_size=1, max_size=6).filter(lambda text: text.isprintable())
nodes = st.integers(0, 52).flatmap(lambda level: st.tuples(st.just(level), st.integers(0, (1 << level) - 1)))
sources = st.one_of(
    st.tuples(st.just("text"), names, st.text(min_size=1, max_size=9)),
    st.tuples(st.just("node"), names, nodes),
)


def encode(source: tuple[str, str, object]) -> bytes:
    kind, attribute, rest = source
    if kind == "text":
        assert isinstance(rest, str)
        return string_element(attribute, rest)
    assert isinstance(rest, tuple)
    return prefix_element(attribute, rest)


@given(st.lists(sources, unique=True, min_size=2))
def test_different_things_are_different_elements(different: list[tuple[str, str, object]]) -> None:
    try:
        encoded = [encode(source) for source in different]
    except UnicodeEncodeError:
        assume(False)
    assert len(set(encoded)) == len(different)


def test_elements_that_could_be_confused_are_not() -> None:
    assert string_element("ab", "c") != string_element("a", "bc")
    assert prefix_element("a", (8, 0x41)) != prefix_element("a", (16, 0x41))
    assert string_element("a", "\x08A") != prefix_element("a", (8, 0x41))


def test_an_element_is_these_bytes() -> None:
    """Brokers compare elements of strangers: a change of the encoding is a change of the protocol."""
    assert string_element("class", "ü") == b"\x01\x05class\xc3\xbc"
    assert prefix_element("age", (0, 0)) == b"\x02\x03age\x00"
    assert prefix_element("age", (9, 0x1FF)) == b"\x02\x03age\x09\x01\xff"


# --- publications and interests -----------------------------------------------------------------------------


def test_a_number_of_sixteen_bits_asks_seventeen_elements_and_a_string_one() -> None:
    assert len(queries(Publication((("age", 7),)), SCHEMA)) == 17
    assert len(queries(Publication((("class", "x"),)), SCHEMA)) == 1


def test_repeated_pairs_query_once_and_undeclared_pairs_not_at_all() -> None:
    once = queries(Publication((("age", 7),)), SCHEMA)
    assert queries(Publication((("age", 7), ("shoe", 44), ("age", 7))), SCHEMA) == once
    twice = queries(Publication((("age", 7), ("age", 6))), SCHEMA)
    assert len(twice) == 17 + 1


def test_an_interest_has_one_cover_for_each_constraint_in_its_order() -> None:
    wanted = All(Range("age", 1, 65534), Label("a"), Box({"temp": (None, None)}))
    assert [len(cover) for cover in covers(wanted, SCHEMA)] == [30, 1, 1]


@pytest.mark.parametrize(
    ("interest", "reason"),
    [
        (Equal("shoe", "x"), "declares no attribute"),
        (Equal("age", "x"), "by a range"),
        (Range("class", 1, 2), "by an equality"),
        (Range("topic", 1, 2), "by an equality"),
        (Range("age", 70000, None), "outside"),
    ],
)
def test_an_interest_the_topic_cannot_route_is_refused(interest: Conjunction, reason: str) -> None:
    with pytest.raises(LocalError, match=reason):
        covers(interest, SCHEMA)


OUTSIDE = [("age", "x"), ("age", 1.5), ("age", 65536), ("class", 1), ("temp", 61), ("class", "x" * 257), ("topic", "")]


@pytest.mark.parametrize("pair", OUTSIDE)
def test_a_publication_outside_the_declared_domains_is_refused(pair: tuple[str, Value]) -> None:
    with pytest.raises(LocalError):
        queries(Publication((pair,)), SCHEMA)


@pytest.mark.parametrize("pair", OUTSIDE)
def test_a_strangers_pair_outside_its_domain_does_not_hide_the_others(pair: tuple[str, Value]) -> None:
    good = Publication((("age", 7), ("class", "x")))
    assert queries_received(Publication((pair,)), SCHEMA) == ()
    for pairs in ((pair, *good.pairs), (*good.pairs, pair)):
        asked = queries_received(Publication(pairs), SCHEMA)
        assert asked == queries(good, SCHEMA)
        wanted = All(Range("age", 1, 10), Equal("class", "x"))
        assert wanted.matches(Publication(pairs))
        assert coarse_match(covers(wanted, SCHEMA), asked)


def test_a_value_outside_its_domain_can_match_by_definition_and_is_why_publishers_refuse_it() -> None:
    beyond, wanted = Publication((("age", 70_000),)), Range("age", 50, None)
    assert wanted.matches(beyond)
    assert not coarse_match(covers(wanted, SCHEMA), queries_received(beyond, SCHEMA))
    with pytest.raises(LocalError):
        queries(beyond, SCHEMA)


@given(matching_cases())
def test_publisher_and_receiver_see_the_same_in_what_may_be_published(case: MatchingCase) -> None:
    for publication in case.publications:
        assert queries_received(publication, case.schema) == queries(publication, case.schema)
