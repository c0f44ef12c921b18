"""The law every index and mode keeps: after the client's filter, what arrives is what the definition says.

Not a test of its own. A mode's test draws a `MatchingCase`, runs it through the mode, and hands over which interest
was given which publication:

    from matching_law import Case, cases, check_deliveries

    @given(cases())
    def test_the_mode_keeps_the_definition(case: Case) -> None:
        check_deliveries(case, run_through_the_mode(case))

A mode may deliver too much, within its bound, and the client drops that; it may not deliver too little.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

from hypothesis import strategies as st

from veilcast.errors import LocalError
from veilcast.machine import Publication, Value
from veilcast.topics import (
    TOPIC,
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
    covers,
)


class MatchingCase(NamedTuple):
    schema: Schema
    interests: list[Conjunction]
    publications: list[Publication]


class ExpectedDelivery(NamedTuple):
    """By position in the case: this interest's client was handed this publication."""

    interest: int
    publication: int


def deliveries_by_definition(case: MatchingCase) -> list[ExpectedDelivery]:
    return [
        ExpectedDelivery(i, p)
        for i, interest in enumerate(case.interests)
        for p, publication in enumerate(case.publications)
        if interest.matches(publication)
    ]


def check_deliveries(case: MatchingCase, delivered: Iterable[ExpectedDelivery]) -> None:
    kept = {d for d in delivered if case.interests[d.interest].matches(case.publications[d.publication])}
    assert sorted(kept) == deliveries_by_definition(case)


@st.composite
def matching_cases(draw: st.DrawFn) -> MatchingCase:
    """A topic, and interests and publications that the topic can route.

    Values and ends of ranges come from the same small pools, so that matches, near misses and values exactly
    on an end all happen often.
    """
    low = draw(st.integers(-(2**40), 2**40))
    span = draw(st.one_of(st.integers(1, 20), st.integers(1, 2**40)))
    ages = Integers("age", low, low + span, draw(st.integers(1, span.bit_length())))
    start = draw(st.floats(-1e9, 1e9))
    temps = Reals("temp", start, start + draw(st.floats(1.0, 1e9)), draw(st.integers(1, 20)))
    schema = Schema((ages, temps, Strings("class")))

    age_pool = draw(st.lists(st.integers(ages.low, ages.high), min_size=2, max_size=4))
    temp_pool = draw(st.lists(st.floats(temps.low, temps.high), min_size=2, max_size=4))
    neighbours = [math.nextafter(x, y) for x in temp_pool for y in (-math.inf, math.inf)]
    temp_pool += [x for x in neighbours if temps.low <= x <= temps.high]
    texts = st.sampled_from(["x", "y", "ü"])
    values: dict[str, st.SearchStrategy[Value]] = {
        "age": st.sampled_from(age_pool),
        "temp": st.sampled_from(temp_pool),
        "class": texts,
        TOPIC: texts,
        "undeclared": st.one_of(texts, st.integers(0, 3)),
    }
    ends: dict[str, list[int | float]] = {
        "age": [end for age in age_pool for end in (age, age - 0.5, age + 1)],
        "temp": [*temp_pool, temps.low - 1, temps.high + 1],
    }
    pair = st.sampled_from(sorted(values)).flatmap(lambda name: st.tuples(st.just(name), values[name]))
    publication = st.lists(pair, max_size=6).map(lambda pairs: Publication(tuple(pairs)))
    interest = _interests(ends, texts).filter(lambda wanted: _routable(wanted, schema))
    return MatchingCase(
        schema,
        draw(st.lists(interest, min_size=1, max_size=6)),
        draw(st.lists(publication, min_size=1, max_size=6)),
    )


def _interests(ends: dict[str, list[int | float]], texts: st.SearchStrategy[str]) -> st.SearchStrategy[Conjunction]:
    spans = {
        name: st.lists(st.none() | st.sampled_from(pool), min_size=2, max_size=2).map(_order_ends)
        for name, pool in ends.items()
    }
    ranges = st.one_of(
        [st.builds(_legal_range, st.just(name), span, st.booleans(), st.booleans()) for name, span in spans.items()]
    )
    single = st.one_of(st.builds(Label, texts), st.builds(Equal, st.just("class"), texts), ranges)
    box = st.fixed_dictionaries(spans).map(Box)
    return st.one_of(single, box, st.lists(st.one_of(single, box), min_size=1, max_size=4).map(lambda p: All(*p)))


Span = tuple[int | float | None, int | float | None]


def _order_ends(ends: list[int | float | None]) -> Span:
    low, high = ends
    return (high, low) if low is not None and high is not None and low > high else (low, high)


def _legal_range(attribute: str, span: Span, low_open: bool, high_open: bool) -> Range:
    low, high = span
    apart = low != high
    return Range(attribute, low, high, low is not None and low_open and apart, high is not None and high_open and apart)


def _routable(interest: Conjunction, schema: Schema) -> bool:
    """A range may hold no value of its domain (an open one between two integers): `covers` refuses that."""
    try:
        covers(interest, schema)
    except LocalError:
        return False
    return True
