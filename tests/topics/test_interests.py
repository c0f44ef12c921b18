"""The meaning of interests; an interest without a meaning cannot be built."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from veilcast.errors import LocalError
from veilcast.machine import Interest, Publication, Value
from veilcast.topics import All, Box, Conjunction, Constraint, Equal, Label, Range
from veilcast.topics.interests import ATTRIBUTE_BYTES, MAX_CONSTRAINTS, TEXT_BYTES


def publication(*pairs: tuple[str, Value]) -> Publication:
    return Publication(pairs)


def test_a_label_matches_the_identical_topic_only() -> None:
    wanted: Interest = Label("news/eu")
    assert wanted.matches(publication(Label("news/eu").pair))
    assert not wanted.matches(publication(("topic", "news/EU")))
    assert not wanted.matches(publication(("topic", "news")))
    assert not wanted.matches(publication(("title", "news/eu")))


@pytest.mark.parametrize(
    ("wanted", "inside", "outside"),
    [
        (Range("t", 20, 25), [20, 22.5, 25], [19, 25.0001]),
        (Range("t", 20, 25, low_open=True), [20.0001, 25], [20, 20.0]),
        (Range("t", 20, 25, high_open=True), [20, 24], [25]),
        (Range("t", None, 25), [-1e300, 25], [26]),
        (Range("t", 20, None, low_open=True), [21, 1e300], [20]),
        (Range("t", None, None), [0, -7.5], []),
        (Range("t", 3, 3), [3, 3.0], [2, 4]),
        (Range("t", 2**53 + 1, None), [2**53 + 1], [2**53, float(2**53)]),
    ],
)
def test_a_range_admits_the_values_between_its_ends(wanted: Range, inside: list[Value], outside: list[Value]) -> None:
    assert all(wanted.matches(publication(("t", value))) for value in inside)
    assert not any(wanted.matches(publication(("t", value))) for value in outside)


@pytest.mark.parametrize("value", ["20", math.nan, math.inf, -math.inf, True, 2**63])
def test_a_value_that_is_no_finite_number_lies_in_no_range(value: Value) -> None:
    assert not Range("t", None, None).matches(publication(("t", value)))


def test_a_number_equals_no_string() -> None:
    assert not Equal("class", "1").matches(publication(("class", 1)))


def test_extra_pairs_do_not_disturb_and_missing_ones_do() -> None:
    box = Box({"lat": (48, 49), "lon": (11, 12)})
    assert box.matches(publication(("lat", 48.1), ("mood", "fine"), ("lon", 11.5)))
    assert not box.matches(publication(("lat", 48.1), ("mood", "fine")))


def test_a_repeated_attribute_matches_by_any_of_its_values() -> None:
    assert Range("t", 20, 25).matches(publication(("t", 1), ("t", 22), ("t", 99)))


def test_two_constraints_on_one_attribute_may_be_met_by_two_pairs() -> None:
    """The letter of P2: neither value lies in the intersection of the two ranges."""
    both = All(Range("t", 0, 5), Range("t", 3, 9))
    assert both.matches(publication(("t", 1), ("t", 8)))
    assert not both.matches(publication(("t", 1)))


def test_class_is_x_and_price_above_y() -> None:
    wanted = All(Equal("class", "x"), Range("price", 9.5, None, low_open=True))
    assert wanted.matches(publication(("class", "x"), ("price", 10)))
    assert not wanted.matches(publication(("class", "x"), ("price", 9.5)))
    assert not wanted.matches(publication(("class", "z"), ("price", 10)))


def test_an_empty_publication_matches_nothing() -> None:
    assert not any(wanted.matches(publication()) for wanted in (Label("a"), Range("t", None, None)))


ILLEGAL: list[tuple[Callable[..., Conjunction], tuple[Any, ...]]] = [
    (Range, ("t", math.nan, 1)),
    (Range, ("t", 0, math.inf)),
    (Range, ("t", True, 2)),
    (Range, ("t", "0", 2)),
    (Range, ("t", 0, 2**63)),
    (Range, ("t", 2, 1)),
    (Range, ("t", 2, 2, True)),
    (Range, ("t", 2, 2, False, True)),
    (Range, ("t", None, 2, True)),
    (Range, ("t", 2, None, False, True)),
    (Range, ("", 1, 2)),
    (Range, (7, 1, 2)),
    (Equal, ("a" * (ATTRIBUTE_BYTES + 1), "x")),
    (Equal, ("class", "")),
    (Equal, ("class", 7)),
    (Equal, ("class", "\ud800")),
    (Label, ("ü" * (TEXT_BYTES // 2 + 1),)),
    (Label, (b"news",)),
    (Box, ({},)),
    (Box, ({"lat": (2, 1)},)),
    (Box, ([("lat", 1, 2)],)),
    (Box, ({"lat": 1},)),
    (All, ()),
    (All, ("news",)),
    (All, ([Label("a")],)),
    (All, (Label("a"),) * (MAX_CONSTRAINTS + 1)),
    (All, (All(*[Label("a")] * MAX_CONSTRAINTS), Label("b"))),
]


@pytest.mark.parametrize(("kind", "arguments"), ILLEGAL)
def test_an_illegal_interest_cannot_be_built(kind: Callable[..., Conjunction], arguments: tuple[Any, ...]) -> None:
    with pytest.raises(LocalError):
        kind(*arguments)


def test_the_longest_legal_names_and_the_most_constraints_are_accepted() -> None:
    Equal("a" * ATTRIBUTE_BYTES, "ü" * (TEXT_BYTES // 2))
    assert len(All(*[Label("a")] * MAX_CONSTRAINTS).constraints) == MAX_CONSTRAINTS


def test_equal_interests_are_one_key_and_cannot_change() -> None:
    assert Box({"a": (1, 2), "b": (3, 4)}) == Box({"b": (3, 4), "a": (1.0, 2.0)})
    assert len({Box({"a": (1, 2)}), Box({"a": (1, 2)}), Range("a", 1, 2), Range("a", 1.0, 2)}) == 2
    for interest, field in [(Label("a"), "name"), (Box({"a": (1, 2)}), "sides"), (All(Label("a")), "parts")]:
        with pytest.raises(AttributeError):
            setattr(interest, field, ())


def test_an_interest_reads_as_it_was_written() -> None:
    for interest in (
        Label("news/eu"),
        Box({"lat": (48, 49), "lon": (None, 12.5)}),
        All(Equal("class", "x"), Range("price", 9.5, None, low_open=True), All(Label("a"))),
    ):
        assert eval(repr(interest)) == interest


def test_the_constraints_are_the_wire_form() -> None:
    wanted = All(Box({"lat": (48, 49)}), Label("a"), Range("price", 9.5, None, low_open=True))
    sent = msgspec.msgpack.encode(wanted.constraints)
    received = msgspec.msgpack.decode(sent, type=tuple[Constraint, ...])
    assert received == wanted.constraints
