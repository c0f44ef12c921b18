"""The Bloom index is always complete, excessive only within its bound, clean after expiry, and full at its capacity."""

from __future__ import annotations

import itertools
import math
import random
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given, settings

from support.index_model import IndexMachine, element, fill
from support.matching_law import ExpectedDelivery, MatchingCase, check_deliveries, matching_cases
from veilcast.errors import ConfigError, LocalError
from veilcast.machine import Publication
from veilcast.topics import (
    All,
    BloomIndex,
    Box,
    Geometry,
    Integers,
    Range,
    Schema,
    covers,
    pair_elements,
    queries,
)
from veilcast.topics.column_allocator import NEVER

SHARP = Geometry.sized(elements=64, queries=200, bound=1e-9)
"""So rarely wrong that what these tests see of it is exact."""


# --- completeness -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bound", [0.4, 1e-6])
@given(matching_cases())
def test_the_index_keeps_the_definition(bound: float, case: MatchingCase) -> None:
    geometry = Geometry.sized(
        elements=case.schema.largest_cover, queries=case.schema.most_queries(pairs=6), bound=bound
    )
    index = BloomIndex(geometry, capacity=1000)
    numbers = index.insert_many([covers(interest, case.schema) for interest in case.interests], expiry=1).tolist()
    found = [index.match(queries(publication, case.schema)) for publication in case.publications]
    check_deliveries(
        case, [ExpectedDelivery(numbers.index(number), p) for p, hits in enumerate(found) for number in hits.tolist()]
    )


class BloomMachine(IndexMachine):
    def make(self) -> BloomIndex:
        return BloomIndex(SHARP, capacity=150)


TestBloomMachine = BloomMachine.TestCase
TestBloomMachine.settings = settings(max_examples=50)


def test_the_model_catches_bits_that_expiry_leaves_behind() -> None:
    machine = BloomMachine()
    with patch.object(BloomIndex, "_clear_bits", lambda self, columns: None):
        machine.insert([[(element(1),)]], 1)
        machine.expire(2)
        machine.insert([[(element(2),)]], 5)
        with pytest.raises(AssertionError):
            machine.match([[element(1)]])


# --- non-excessiveness --------------------------------------------------------------------------------------


def chance_of_so_many(hits: int, trials: int, bound: float) -> float:
    """At most this likely: that many hits or more in independent trials of at most this chance (Chernoff)."""
    rate = hits / trials
    if rate <= bound:
        return 1.0
    divergence = rate * math.log(rate / bound) + (1 - rate) * math.log((1 - rate) / (1 - bound))
    return math.exp(-trials * divergence)


def false_hits(geometry: Geometry, columns: int, constraints: int, elements: int, asked: int) -> int:
    """The number of subscriptions that pass a publication which shares nothing with them.

    All elements are different, so for any placing of the queries the subscriptions are independent trials.
    """
    fresh = map(element, itertools.count())
    index = BloomIndex(geometry, capacity=columns * constraints)
    index.insert_many(
        [[tuple(itertools.islice(fresh, elements)) for _ in range(constraints)] for _ in range(columns)],
        expiry=1,
    )
    return len(index.match(list(itertools.islice(fresh, asked))))


def test_false_positives_stay_within_the_bound() -> None:
    """A correct index fails this for fewer than one key in a million."""
    geometry = Geometry.sized(elements=30, queries=17, bound=0.05)
    hits = false_hits(geometry, columns=6000, constraints=1, elements=30, asked=17)
    assert chance_of_so_many(hits, 6000, geometry.bound) > 1e-6
    assert hits > 0.5 * 6000 * geometry.bound, "the bound is near the truth, else memory is wasted"


def test_the_check_on_false_positives_catches_filters_that_are_too_full() -> None:
    geometry = Geometry.sized(elements=15, queries=17, bound=0.05)
    overfull = Geometry(hashes=geometry.hashes, width=geometry.width, elements=30, queries=17)
    hits = false_hits(overfull, columns=1000, constraints=1, elements=30, asked=17)
    assert chance_of_so_many(hits, 1000, geometry.bound) < 1e-6


def test_more_constraints_make_false_positives_rarer() -> None:
    geometry = Geometry.sized(elements=10, queries=17, bound=0.2)
    hits = [false_hits(geometry, columns=2000, constraints=n, elements=10, asked=17) for n in (1, 2, 3)]
    assert hits[0] > 2 * hits[1] > 4 * hits[2]


# --- what a column stands for -------------------------------------------------------------------------------

PLANE = Schema((Integers("a", 0, 255, 8), Integers("b", 0, 255, 8)))
FIRST, SECOND = Box({"a": (0, 9), "b": (0, 9)}), Box({"a": (100, 109), "b": (100, 109)})
MIXED = Publication((("a", 5), ("b", 105)))
"""Its a is wanted by the first subscription, its b by the second, and the whole by neither."""


def test_one_filter_for_all_that_a_subscriber_wants_mixes_the_subscriptions() -> None:
    """P2 to the letter: no bit collides, and yet the subscriber is given what none of its wishes matches."""
    assert not FIRST.matches(MIXED)
    assert not SECOND.matches(MIXED)
    profile = tuple(element for wanted in (FIRST, SECOND) for cover in covers(wanted, PLANE) for element in cover)
    index = BloomIndex(SHARP, capacity=1)
    index.insert([profile], expiry=1)
    # Each attribute of the publication must find something in the one filter. Each does.
    by_attribute = [
        index.match(pair_elements(domain, value)) for domain, (_, value) in zip(PLANE.domains, MIXED.pairs, strict=True)
    ]
    assert [hits.tolist() for hits in by_attribute] == [[0], [0]]


def test_one_column_for_each_constraint_keeps_subscriptions_apart() -> None:
    index = BloomIndex(SHARP, capacity=4)
    index.insert_many([covers(wanted, PLANE) for wanted in (FIRST, SECOND)], expiry=1)
    assert index.match(queries(MIXED, PLANE)).tolist() == []


def test_the_cost_of_mixing_equals_the_calculated_one() -> None:
    """Ten boxes of a ninth by a ninth match 12 % of publications; one filter for all ten lets 48 % through."""
    rng = random.Random(7)
    schema = Schema((Integers("a", 0, 999, 10), Integers("b", 0, 999, 10)))
    geometry = Geometry.sized(elements=10 * 2 * schema.largest_cover, queries=22, bound=1e-6)
    literal, repaired = (BloomIndex(geometry, capacity=6000) for _ in range(2))
    subscribers = 300
    for _ in range(subscribers):
        boxes = []
        for _ in range(10):
            a, b = rng.randrange(900), rng.randrange(900)
            boxes.append(covers(Box({"a": (a, a + 99), "b": (b, b + 99)}), schema))
        literal.insert([tuple(element for box in boxes for cover in box for element in cover)], expiry=1)
        repaired.insert_many(boxes, expiry=1)
    mixed = wanted = 0
    for _ in range(30):
        point = [rng.randrange(100, 900), rng.randrange(100, 900)]
        parts = [pair_elements(domain, value) for domain, value in zip(schema.domains, point, strict=True)]
        mixed += len(np.intersect1d(literal.match(parts[0]), literal.match(parts[1])))
        wanted += len(np.unique(repaired.match(parts[0] + parts[1]) // 20))  # 10 boxes of 2 columns a subscriber
    share = 100 / 900
    assert mixed / (30 * subscribers) == pytest.approx((1 - (1 - share) ** 10) ** 2, abs=0.05)
    assert wanted / (30 * subscribers) == pytest.approx(1 - (1 - share**2) ** 10, abs=0.05)


# --- bounds and refusals ------------------------------------------------------------------------------------


def test_a_full_index_says_so_changes_nothing_and_takes_more_after_expiry() -> None:
    fill(BloomIndex(SHARP, capacity=70))


def test_expired_columns_are_cleared_and_used_again_before_memory_grows() -> None:
    index = BloomIndex(SHARP, capacity=10_000)
    for now in range(1, 50):
        index.insert_many([[(element(n), element(now))] for n in range(100)], expiry=now)
        held = index.nbytes
        assert len(index.expire(now)) == 100
        assert not any(index.match([element(n)]).size for n in range(100))
    assert index.nbytes == held


def test_a_subscription_lives_until_its_expiry_and_not_at_it() -> None:
    index = BloomIndex(SHARP, capacity=10)
    number = index.insert([(element(1),)], expiry=10)
    assert index.next_expiry() == 10
    assert index.expire(9).tolist() == []
    assert index.expire(10).tolist() == [number]
    assert index.next_expiry() is None


def test_the_next_expiry_moves_on_when_the_soonest_is_gone() -> None:
    index = BloomIndex(SHARP, capacity=10)
    for expiry in (5, 9, 7):
        index.insert([(element(expiry),)], expiry=expiry)
    for now, following in ((5, 7), (7, 9), (9, None)):
        assert index.next_expiry() == now
        assert len(index.expire(now)) == 1
        assert index.next_expiry() == following


def test_a_value_that_is_no_element_is_refused_and_takes_no_column() -> None:
    index = BloomIndex(SHARP, capacity=2)
    index.insert([(element(1),)], expiry=1)
    for illegal in ([("text",)], [(element(1), 7)], [b"abc"]):
        with pytest.raises(LocalError, match="bytes"):
            index.insert(illegal, expiry=1)  # type: ignore[arg-type]
        assert (len(index), index.columns) == (1, 1)
    assert index.insert([(element(2),)], expiry=1) == 1


def test_filters_and_publications_beyond_the_geometry_are_refused() -> None:
    index = BloomIndex(Geometry.sized(elements=2, queries=3, bound=0.01), capacity=10)
    for illegal in ([], [()], [tuple(map(element, range(3)))]):
        with pytest.raises(LocalError, match="1 to 2 elements"):
            index.insert(illegal, expiry=1)
    with pytest.raises(LocalError, match="at most 3 elements"):
        index.match([element(n) for n in range(4)])
    assert index.match([element(0)] * 4).tolist() == []
    with pytest.raises(LocalError, match="64 bits"):
        index.insert([(element(1),)], expiry=NEVER)
    assert len(index) == 0


def test_an_empty_index_and_an_empty_publication_match_nothing() -> None:
    index = BloomIndex(SHARP, capacity=10)
    assert index.match([element(1)]).tolist() == []
    assert index.insert_many([], expiry=1).tolist() == []
    index.insert([(element(1),)], expiry=1)
    assert index.match([]).tolist() == []


def test_indexes_with_different_keys_place_elements_differently() -> None:
    """With a collision under one key, and none under the other: the key decides who is let through wrongly."""
    geometry = Geometry(hashes=1, width=4, elements=1, queries=1)
    hits = []
    for key in (b"one key", b"another"):
        index = BloomIndex(geometry, capacity=100, key=key)
        index.insert_many([[(element(n),)] for n in range(100)], expiry=1)
        hits.append(index.match([element(1000)]).tolist())
    assert hits[0] != hits[1]


@pytest.mark.parametrize("wrong", [{"capacity": 0}, {"capacity": 1, "key": b""}, {"capacity": 1, "key": bytes(65)}])
def test_an_index_without_room_or_key_is_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(ConfigError):
        BloomIndex(SHARP, **wrong)  # type: ignore[arg-type]


def test_conjunctions_match_only_when_every_constraint_does() -> None:
    schema = Schema((Integers("age", 0, 65535, 16),))
    index = BloomIndex(SHARP, capacity=10)
    both = index.insert(covers(All(Range("age", 0, 50), Range("age", 40, 99)), schema), expiry=1)
    assert index.match(queries(Publication((("age", 45),)), schema)).tolist() == [both]
    assert index.match(queries(Publication((("age", 60),)), schema)).tolist() == []
    assert index.match(queries(Publication((("age", 1), ("age", 60))), schema)).tolist() == [both]
