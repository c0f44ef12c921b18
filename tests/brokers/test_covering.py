"""One interest covers another exactly if it matches everything that the other does."""

from __future__ import annotations

from itertools import chain, combinations

from hypothesis import given, settings
from hypothesis import strategies as st

from veilcast.brokers.routing.covering import (
    conforms,
    covers,
    covers_advertisement,
    intersects,
    is_within,
    overlaps,
)
from veilcast.machine import Publication, Value
from veilcast.topics import All, Box, Conjunction, Constraint, Equal, Label, Range
from veilcast.topics.predicates import make_interest

POINTS: list[Value] = [-0.5, 0, 0.5, 1, 1.5, 2, 2.5, "x", "y"]
"""Every range with ends 0, 1, 2 that differs from another does so at one of these."""

some = settings(max_examples=30)
ends = st.sampled_from([None, 0, 1, 2])


@st.composite
def ranges(draw: st.DrawFn, attribute: str) -> Range:
    low, high = draw(ends), draw(ends)
    if low is not None and high is not None and low > high:
        low, high = high, low
    closed = low is not None and low == high
    return Range(
        attribute,
        low,
        high,
        low_open=low is not None and not closed and draw(st.booleans()),
        high_open=high is not None and not closed and draw(st.booleans()),
    )


constraints = st.one_of(st.builds(Equal, st.sampled_from("ab"), st.sampled_from("xy")), ranges("a"), ranges("b"))
interests = st.lists(constraints, min_size=1, max_size=3).map(lambda parts: All(*parts))
values_of = st.sampled_from([(attribute, value) for attribute in "ab" for value in POINTS])
publications = st.lists(values_of, max_size=4).map(lambda pairs: Publication(tuple(pairs)))


def values(c: Constraint) -> set[Value]:
    return {value for value in POINTS if c.admits(value)}


# --- covering against its definition ----------------------------------------------------------------------------------


@given(constraints, constraints)
@some
def test_is_within_and_intersects_match_set_operations(one: Constraint, other: Constraint) -> None:
    same = one.attribute == other.attribute
    assert is_within(one, other) == (same and values(one) <= values(other))
    assert intersects(one, other) == (same and bool(values(one) & values(other)))


def small_publications() -> list[Publication]:
    pairs = [(attribute, value) for attribute in "ab" for value in POINTS]
    chosen = chain.from_iterable(combinations(pairs, count) for count in (0, 1, 2))
    return [Publication(each) for each in chosen]


SMALL = small_publications()


@given(interests, st.lists(constraints, min_size=1, max_size=2).map(lambda parts: All(*parts)))
@some
def test_covering_is_matching_all_that_the_other_matches(s: Conjunction, t: Conjunction) -> None:
    """Two constraints can be met by two pairs, and publications with fewer pairs are included: that is exhaustive."""
    assert covers(s, t) == all(s.matches(publication) for publication in SMALL if t.matches(publication))


@given(interests, interests, interests)
@some
def test_covering_is_an_order(a: Conjunction, b: Conjunction, c: Conjunction) -> None:
    assert covers(a, a)
    if covers(a, b) and covers(b, c):
        assert covers(a, c)


@given(interests, interests, publications)
@some
def test_covered_interests_are_never_lost(s: Conjunction, t: Conjunction, publication: Publication) -> None:
    if covers(s, t) and t.matches(publication):
        assert s.matches(publication)


def test_labels_boxes_and_conjunctions_cover_as_they_should() -> None:
    assert covers(Label("news"), All(Label("news"), Range("price", 1, 2)))
    assert not covers(All(Label("news"), Range("price", 1, 2)), Label("news"))
    assert covers(Box({"lat": (40, 50), "lon": (0, 20)}), Box({"lat": (48, 49), "lon": (11, 12)}))
    assert not covers(Box({"lat": (48, 49), "lon": (11, 12)}), Box({"lat": (48, 49)}))
    assert covers(Range("price", 50, None, low_open=True), Range("price", 50, 60, low_open=True))
    assert not covers(Range("price", 50, None, low_open=True), Range("price", 50, 60))


def test_two_constraints_on_one_attribute_are_not_their_intersection() -> None:
    """Two pairs may meet them, so a narrower or empty intersection proves nothing."""
    both = All(Range("a", 0, 1), Range("a", 2, 3))
    assert not covers(Range("a", 1, 2), both)
    assert covers(Range("a", None, 1), both)


# --- advertisements ---------------------------------------------------------------------------------------------------


@given(st.lists(constraints, min_size=1, max_size=2).map(lambda parts: All(*parts)), interests)
@some
def test_an_advertisement_overlaps_what_a_conforming_publication_can_match(a: Conjunction, s: Conjunction) -> None:
    """A witness takes a pair for each constraint of both, from the distinguishable values."""
    pairs = [(attribute, value) for attribute in "ab" for value in POINTS]
    admitted = [pair for pair in pairs if any(pair[0] == c.attribute and c.admits(pair[1]) for c in a.constraints)]
    everything = Publication(tuple(admitted))
    assert conforms(everything, a)
    assert overlaps(a, s) == s.matches(everything)


@given(interests, interests, publications)
@some
def test_a_covering_advertisement_includes_what_the_other_announces(
    a: Conjunction, b: Conjunction, publication: Publication
) -> None:
    if covers_advertisement(a, b) and conforms(publication, b):
        assert conforms(publication, a)


@given(interests, interests, interests)
@some
def test_a_covering_advertisement_attracts_all_subscriptions_of_the_other(
    a: Conjunction, b: Conjunction, s: Conjunction
) -> None:
    if covers_advertisement(a, b) and overlaps(b, s):
        assert overlaps(a, s)


def test_a_publication_with_more_than_was_advertised_does_not_conform() -> None:
    a = make_interest([("class", "=", "bar"), ("price", ">", 0)])
    assert conforms(Publication((("class", "bar"), ("price", 5))), a)
    assert not conforms(Publication((("class", "bar"),)), a)
    assert not conforms(Publication((("class", "bar"), ("price", 5), ("volume", 1))), a)
    assert not conforms(Publication((("class", "bar"), ("price", 5), ("price", -1))), a)
