"""Elements and matchers of both profiles against the definition of a match."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from support.matching_law import ExpectedDelivery, MatchingCase, check_deliveries, matching_cases
from veilcast.authority.topic_record import TopicRecord
from veilcast.core import match_elements
from veilcast.core.match_elements import ElementGroups
from veilcast.crypto.derive import digest
from veilcast.errors import LocalError
from veilcast.machine import Publication
from veilcast.relay.matcher import ExactMatcher, FilterMatcher, IndexedLease, Matcher
from veilcast.topics import All, Equal, Geometry, Integers, Label, Range, Schema, Strings
from veilcast.topics.tag_index import TAG
from veilcast.wire.geometry import SUBJECTS_MAX

GEOMETRY = Geometry.sized(elements=1024, queries=SUBJECTS_MAX, bound=1e-6)
TOPIC = "topic of the case"


def through(case: MatchingCase, matcher: Matcher, *, paper: bool) -> list[ExpectedDelivery]:
    """The matches at a server; cases with more subjects than fit a message are skipped."""
    record = TopicRecord(TOPIC, case.schema)
    want, say = (
        (match_elements.paper_subscription_elements, match_elements.paper_publication_elements)
        if paper
        else (match_elements.subscription_elements, match_elements.publication_elements)
    )
    found = []
    try:
        for number, interest in enumerate(case.interests):
            groups = want(All(Label(TOPIC), *interest.constraints), record)
            matcher.put(b"%d" % number, b"", tags(groups), 10)
        for number, publication in enumerate(case.publications):
            said = say(Publication((Label(TOPIC).pair, *publication.pairs)), record)
            found += [ExpectedDelivery(int(name), number) for name in matcher.match(tags(said))]
    except LocalError as error:
        assume("at most" not in str(error))
        raise
    return found


def tags(groups: ElementGroups) -> ElementGroups:
    """Tags as a server sees them, except that anyone can name them."""
    return tuple(tuple(digest(element, purpose=b"test", size=TAG) for element in group) for group in groups)


@settings(max_examples=50)
@given(matching_cases())
def test_the_hardened_relay_matches_by_the_definition(case: MatchingCase) -> None:
    check_deliveries(case, through(case, ExactMatcher(100), paper=False))


@settings(max_examples=50)
@given(matching_cases())
def test_the_paper_relay_matches_by_the_definition(case: MatchingCase) -> None:
    check_deliveries(case, through(case, FilterMatcher(GEOMETRY, 100), paper=True))


RECORD = TopicRecord("news", Schema((Integers("level", 0, 15, 4), Strings("kind"))))
LEVEL = All(Label("news"), Range("level", 3, 9))


def test_a_lease_uses_the_topic_label_only_without_other_constraints() -> None:
    assert len(match_elements.subscription_elements(Label("news"), RECORD)) == 1
    assert match_elements.subscription_elements(LEVEL, RECORD) == match_elements.subscription_elements(
        Range("level", 3, 9), RECORD
    )
    both = All(Label("news"), Label("sport"))
    assert len(match_elements.subscription_elements(both, RECORD)) == 1, "a second label is a constraint like any other"


def test_an_interest_or_publication_with_too_many_elements_is_refused() -> None:
    wide = TopicRecord("news", Schema(tuple(Integers(f"a{i}", 0, 2**32 - 1, 32) for i in range(8))))
    ranges = All(*(Range(f"a{i}", 1, 2**32 - 2) for i in range(8)))
    with pytest.raises(LocalError, match="at most"):
        match_elements.subscription_elements(ranges, wide)
    with pytest.raises(LocalError, match="at most"):
        match_elements.publication_elements(Publication(tuple((f"a{i}", 5) for i in range(8))), wide)


def drawn(rng: Random) -> bytes:
    return rng.randbytes(TAG)


def test_an_exact_match_needs_a_tag_of_each_group() -> None:
    rng, matcher = Random(1), ExactMatcher(100)
    a, b, c, d = (drawn(rng) for _ in range(4))
    matcher.put(b"both", b"", ((a, b), (c,)), 10)
    matcher.put(b"one", b"", ((c, d),), 20)
    assert matcher.match(((b, c),)) == [b"both", b"one"]
    assert matcher.match(((a, d),)) == [b"one"]
    matcher.put(b"one", b"", ((a,),), 30)
    assert matcher.match(((d,),)) == []
    assert matcher.expire(10) == [b"both"]
    assert matcher.next_us() == 30
    matcher.remove(b"one", b"")
    matcher.remove(b"one", b"")
    assert len(matcher) == 0


def test_a_full_index_refuses_and_stays_unchanged() -> None:
    rng, matcher = Random(1), ExactMatcher(2)
    a = drawn(rng)
    matcher.put(b"a", b"", ((a,),), 10)
    with pytest.raises(LocalError, match="full"):
        matcher.put(b"b", b"", ((a,), (a,)), 10)
    assert matcher.match(((a,),)) == [b"a"]


def test_a_filter_is_rebuilt_when_a_part_is_removed() -> None:
    rng, matcher = Random(1), FilterMatcher(GEOMETRY, 10)
    a, b = drawn(rng), drawn(rng)
    matcher.put(b"n", b"1", ((a,),), 10)
    matcher.put(b"n", b"2", ((b,),), 10)
    assert matcher.match(((a,), (b,))) == [b"n"]
    matcher.remove(b"n", b"1")
    assert matcher.match(((a,),)) == []
    assert matcher.match(((b,),)) == [b"n"]
    matcher.remove(b"n", b"2")
    assert len(matcher) == 0
    assert matcher.expire(100) == []
    assert matcher.next_us() is None


@given(st.integers(0, 2**32))
@settings(max_examples=5)
def test_filters_have_no_false_negatives_and_keep_their_false_positive_bound(seed: int) -> None:
    rng, bound = Random(seed), 0.01
    matcher = FilterMatcher(Geometry.sized(elements=40, queries=8, bound=bound), 400)
    held = {b"%d" % number: [drawn(rng) for _ in range(40)] for number in range(400)}
    for name, elements_of in held.items():
        matcher.put(name, b"", (tuple(elements_of),), 10)
    wrong = 0
    for _ in range(40):
        name = rng.choice(list(held))
        asked = (rng.choice(held[name]), *(drawn(rng) for _ in range(7)))
        found = matcher.match((asked,))
        assert name in found
        wrong += len(found) - 1
    assert wrong / (40 * 399) <= 1.5 * bound


def test_a_filter_refuses_more_elements_than_its_bound_allows() -> None:
    rng, matcher = Random(1), FilterMatcher(Geometry.sized(elements=4, queries=8, bound=0.01), 10)
    matcher.put(b"n", b"1", (tuple(drawn(rng) for _ in range(3)),), 10)
    with pytest.raises(LocalError, match="1 to 4"):
        matcher.put(b"n", b"2", (tuple(drawn(rng) for _ in range(2)),), 10)
    matcher.put(b"n", b"3", ((drawn(rng),),), 10)


def test_the_wildcard_of_a_string_is_not_a_string() -> None:
    poured = match_elements.paper_subscription_elements(Label("news"), RECORD)[0]
    asked = match_elements.paper_publication_elements(Publication((Label("news").pair, ("kind", "red"))), RECORD)
    assert all(any(element in poured for element in group) for group in asked)
    narrow = match_elements.paper_subscription_elements(All(Label("news"), Equal("kind", "blue")), RECORD)[0]
    assert not all(any(element in narrow for element in group) for group in asked)


@pytest.mark.parametrize(
    "make", [lambda: ExactMatcher(1000), lambda: FilterMatcher(GEOMETRY, 1000)], ids=["exact", "filters"]
)
def test_put_many_equals_repeated_put(make: Callable[[], Matcher]) -> None:
    rng, words = Random(7), [bytes([word]) * TAG for word in range(20)]
    leases = [
        IndexedLease(
            b"%d" % (number % 40), b"" if number < 40 else b"more", (tuple(rng.sample(words, 2)),), 10 + number % 3
        )
        for number in range(60)
    ]
    if isinstance(make(), ExactMatcher):
        leases = leases[:40]  # A lease of its has no parts.
    together, one_by_one = make(), make()
    together.put_many([])
    assert not len(together)
    together.put_many(leases)
    for lease in leases:
        one_by_one.put(*lease)

    def check() -> None:
        assert len(together) == len(one_by_one)
        assert together.next_us() == one_by_one.next_us()
        for word in words:
            assert sorted(together.match(((word,),))) == sorted(one_by_one.match(((word,),)))

    check()
    assert sorted(together.expire(11)) == sorted(one_by_one.expire(11))
    for matcher in (together, one_by_one):
        matcher.put(b"0", b"", ((words[0],),), 20)
        matcher.remove(b"1", b"")
    check()
