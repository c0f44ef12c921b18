"""Domains: legal declarations only, a cell map that never falls, and ranges that round outwards."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from veilcast.errors import ConfigError, LocalError
from veilcast.machine import Value
from veilcast.topics import Domain, Integers, Range, Reals, Schema, Strings
from veilcast.topics.domain import MAX_BITS, MAX_DOMAINS


@st.composite
def reals(draw: st.DrawFn) -> Reals:
    low, high = sorted((draw(st.floats(-1e300, 1e300)), draw(st.floats(-1e300, 1e300))))
    return Reals("x", low, high if high > low else math.nextafter(low, math.inf), draw(st.integers(1, MAX_BITS)))


@st.composite
def integers(draw: st.DrawFn) -> Integers:
    low = draw(st.integers(-(2**63), 2**63 - 2))
    high = draw(st.integers(low + 1, 2**63 - 1))
    return Integers("x", low, high, draw(st.integers(1, min(MAX_BITS, (high - low).bit_length()))))


@given(reals(), st.data())
def test_real_cells_never_fall_and_fill_the_resolution(domain: Reals, data: st.DataObject) -> None:
    inside = st.floats(domain.low, domain.high) | st.integers(-(2**63), 2**63 - 1).filter(
        lambda value: domain.low <= value <= domain.high
    )
    smaller, larger = sorted((data.draw(inside), data.draw(inside)))
    assert 0 == domain.cell(domain.low) <= domain.cell(smaller) <= domain.cell(larger) <= domain.cell(domain.high)
    assert domain.cell(domain.high) == (1 << domain.bits) - 1


@given(integers(), st.data())
def test_integer_cells_never_fall_and_fit_the_resolution(domain: Integers, data: st.DataObject) -> None:
    inside = st.integers(domain.low, domain.high)
    smaller, larger = sorted((data.draw(inside), data.draw(inside)))
    assert 0 == domain.cell(domain.low) <= domain.cell(smaller) <= domain.cell(larger) <= domain.cell(domain.high)
    assert domain.cell(domain.high) < 1 << domain.bits


def test_integers_at_full_resolution_have_a_cell_each() -> None:
    domain = Integers("age", -3, 117, 7)
    assert [domain.cell(value) for value in range(-3, 118)] == list(range(121))


@pytest.mark.parametrize(
    ("wanted", "cells"),
    [
        (Range("n", 3, 5), (3, 5)),
        (Range("n", 3, 5, low_open=True, high_open=True), (4, 4)),
        (Range("n", 2.5, 5.5), (3, 5)),
        (Range("n", 2.5, 5.5, low_open=True, high_open=True), (3, 5)),
        (Range("n", -100, 3), (0, 3)),
        (Range("n", 12, None), (12, 15)),
        (Range("n", None, None), (0, 15)),
    ],
)
def test_integer_ranges_end_at_the_outermost_integers_they_hold(wanted: Range, cells: tuple[int, int]) -> None:
    assert Integers("n", 0, 15, 4).cells(wanted) == cells


def test_coarser_integers_share_cells_and_ranges_round_outwards() -> None:
    domain = Integers("n", 0, 15, 2)
    assert domain.cells(Range("n", 3, 5)) == (0, 1)
    assert domain.cells(Range("n", 4, 7)) == (1, 1)


def test_real_ranges_round_outwards_to_whole_cells() -> None:
    domain = Reals("x", 0, 1, 2)
    assert domain.cells(Range("x", 0.3, 0.6)) == (1, 2)
    assert domain.cells(Range("x", -5, 0.25)) == (0, 1)
    assert domain.cells(Range("x", 0.9, None)) == (3, 3)


@pytest.mark.parametrize(
    ("domain", "wanted"),
    [
        (Integers("n", 0, 15, 4), Range("n", 16, 20)),
        (Integers("n", 0, 15, 4), Range("n", 3, 4, low_open=True, high_open=True)),
        (Integers("n", 0, 15, 4), Range("n", 3.2, 3.8)),
        (Reals("n", 0, 1, 4), Range("n", None, -0.1)),
    ],
)
def test_a_range_that_no_value_can_reach_is_refused(domain: Integers | Reals, wanted: Range) -> None:
    with pytest.raises(LocalError, match="outside"):
        domain.cells(wanted)


@pytest.mark.parametrize("value", [-1, 16, 3.0, True, "3", math.nan])
def test_a_value_that_is_no_integer_of_the_domain_is_refused(value: Value) -> None:
    with pytest.raises(LocalError, match="integer"):
        Integers("n", 0, 15, 4).cell(value)


@pytest.mark.parametrize("value", [-0.1, 2, math.nan, math.inf, True, "0.5"])
def test_a_value_that_is_no_number_of_the_domain_is_refused(value: Value) -> None:
    with pytest.raises(LocalError, match="finite number"):
        Reals("x", 0, 1, 4).cell(value)


ILLEGAL: list[tuple[Callable[..., Domain], tuple[Any, ...]]] = [
    (Strings, ("",)),
    (Integers, ("n", 0, 0, 1)),
    (Integers, ("n", 5, 4, 1)),
    (Integers, ("n", 0.0, 4, 1)),
    (Integers, ("n", False, 4, 1)),
    (Integers, ("n", 0, 2**63, 8)),
    (Integers, ("n", 0, 15, 0)),
    (Integers, ("n", 0, 15, 5)),
    (Integers, ("n", 0, 2**60, MAX_BITS + 1)),
    (Reals, ("x", 1.0, 1.0, 4)),
    (Reals, ("x", math.nan, 1.0, 4)),
    (Reals, ("x", -1.7e308, 1.7e308, 4)),
    (Reals, ("x", 0.0, math.inf, 4)),
    (Reals, ("x", 0.0, 1.0, 0)),
    (Reals, ("x", 0.0, 1.0, MAX_BITS + 1)),
    (Reals, ("x", 0.0, 1.0, True)),
]


@pytest.mark.parametrize(("kind", "arguments"), ILLEGAL)
def test_an_illegal_domain_cannot_be_declared(kind: Callable[..., Domain], arguments: tuple[Any, ...]) -> None:
    with pytest.raises(LocalError):
        kind(*arguments)


def test_a_topic_declares_each_attribute_once_and_never_the_reserved_one() -> None:
    for domains in ((Strings("a"), Reals("a", 0, 1, 4)), (Strings("topic"),)):
        with pytest.raises(ConfigError, match="declared twice, or reserved"):
            Schema(domains)


def test_a_topic_declares_a_bounded_number_of_attributes() -> None:
    most = tuple(Strings(f"a{number}") for number in range(MAX_DOMAINS))
    assert Schema(most).find("a0") == Strings("a0")
    with pytest.raises(ConfigError, match="at most"):
        Schema((*most, Strings("one more")))


def test_labels_need_no_declaration_and_other_attributes_do() -> None:
    assert Schema().find("topic") == Strings("topic")
    assert Schema().find("age") is None


def test_the_finest_domain_sizes_covers_and_queries() -> None:
    schema = Schema((Strings("class"), Integers("n", 0, 255, 8), Reals("x", 0, 1, 16)))
    assert schema.largest_cover == 30
    assert schema.most_queries(pairs=1) == 17
    assert (Schema().largest_cover, Schema().most_queries(pairs=3)) == (1, 3)


def test_a_schema_comes_back_from_the_wire_as_the_same_bytes() -> None:
    schema = Schema((Strings("class"), Integers("n", -5, 250, 8), Reals("x", 0, 1, 16)))
    sent = msgspec.msgpack.encode(schema)
    received = msgspec.msgpack.decode(sent, type=Schema)
    assert received == schema
    assert msgspec.msgpack.encode(received) == sent
