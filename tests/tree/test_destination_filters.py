"""The paper's routing table: no false negatives, a bounded rate of false positives, and an error when it is full."""

from __future__ import annotations

import random
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from veilcast.errors import LocalError
from veilcast.topics import Geometry
from veilcast.tree import destination_filters
from veilcast.tree.destination_filters import DestinationFilters

GEOMETRY = Geometry.sized(elements=64, queries=8, bound=1e-6)
words = st.sampled_from([b"a", b"b", b"c", b"d", b"e"])
groups = st.lists(st.lists(words, min_size=1, max_size=2), min_size=1, max_size=3)


@given(
    st.lists(st.tuples(st.sampled_from([b"x", b"y", b"z"]), st.lists(words, min_size=1, max_size=3)), max_size=8),
    groups,
    st.booleans(),
)
@settings(max_examples=60)
def test_a_publication_matches_filters_with_an_element_of_each_group(
    poured: list[tuple[bytes, list[bytes]]], asked: list[list[bytes]], counting: bool
) -> None:
    table, model = DestinationFilters(GEOMETRY, destinations=3, counting=counting), dict[bytes, set[bytes]]()
    for destination, elements in poured:
        table.add(destination, elements)
        model.setdefault(destination, set()).update(elements)
    expected = [destination for destination, held in model.items() if all(held & set(group) for group in asked)]
    assert table.match(asked) == expected
    assert len(table) == len(model)


@given(st.lists(st.tuples(st.booleans(), words), max_size=30))
@settings(max_examples=60)
def test_a_counted_element_can_be_removed_as_often_as_it_was_added(steps: list[tuple[bool, bytes]]) -> None:
    table, held = (
        DestinationFilters(GEOMETRY, destinations=1, counting=True),
        dict.fromkeys((b"a", b"b", b"c", b"d", b"e"), 0),
    )
    for pour, element in steps:
        if pour:
            table.add(b"x", [element])
            held[element] += 1
        else:
            table.remove(b"x", [element])
            held[element] = max(0, held[element] - 1)
    for element, count in held.items():
        assert table.match([[element]]) == ([b"x"] if count else [])


def test_plain_filters_only_grow() -> None:
    table = DestinationFilters(GEOMETRY, destinations=1)
    with pytest.raises(LocalError, match="do not count"):
        table.remove(b"x", [b"a"])
    DestinationFilters(GEOMETRY, destinations=1, counting=True).remove(b"unknown", [b"a"])


def test_a_filter_is_full_at_its_element_limit() -> None:
    for counting in (False, True):
        table = DestinationFilters(GEOMETRY, destinations=2, counting=counting)
        table.add(b"x", [bytes((number,)) for number in range(64)])
        with pytest.raises(LocalError, match="at most 64 elements"):
            table.add(b"x", [b"one more"])
        assert table.match([[b"one more"]]) == []
    once = DestinationFilters(GEOMETRY, destinations=1)
    for _ in range(3):
        once.add(b"x", [bytes((number,)) for number in range(64)])
    assert len(once) == 1, "what is there already takes no room"


def test_a_table_is_full_at_its_destination_limit() -> None:
    table = DestinationFilters(GEOMETRY, destinations=20)
    for number in range(20):
        table.add(bytes((number,)), [b"a", bytes((number,))])
    with pytest.raises(LocalError, match="at most 20 destinations"):
        table.add(b"another", [b"a"])
    assert table.match([[b"a"]]) == [bytes((number,)) for number in range(20)]
    assert table.match([[bytes((7,))]]) == [bytes((7,))]
    assert table.match([]) == []
    with pytest.raises(LocalError):
        DestinationFilters(GEOMETRY, destinations=0)


def test_counters_refuse_to_overflow() -> None:
    counted = DestinationFilters(GEOMETRY, destinations=1, counting=True)
    for _ in range(40):
        counted.add(b"x", [b"a"])
    with patch.object(destination_filters, "_COUNT_MAX", 40), pytest.raises(LocalError, match="at its maximum"):
        counted.add(b"x", [b"a"])
    assert counted.match([[b"a"]]) == [b"x"]
    assert destination_filters._COUNT_MAX == 65_535


def test_false_positives_keep_their_bound_and_a_loose_bound_sends_stray_copies() -> None:
    """With 499 destinations and 1 % for each, every publication makes five stray copies."""
    rng = random.Random(4)
    loose = Geometry.sized(elements=8, queries=1, bound=0.01)
    table = DestinationFilters(loose, destinations=499)
    for _ in range(499):
        table.add(rng.randbytes(16), [rng.randbytes(16) for _ in range(8)])
    astray = [len(table.match([[rng.randbytes(16)]])) for _ in range(2000)]
    mean = sum(astray) / len(astray)
    assert 2.5 < mean <= 499 * loose.bound * 1.1
