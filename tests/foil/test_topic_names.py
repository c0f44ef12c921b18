"""Names on the broker: its topic matching is the coarse match, and hardened names reveal only cells."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.dictionary_attack import keyless_names
from veilcast.authority.keyring import TopicKeys
from veilcast.authority.topic_record import TopicRecord
from veilcast.crypto.secret import Secret
from veilcast.errors import LocalError
from veilcast.foil.topic_names import (
    BITS_MAX,
    FILTERS_EACH,
    LEVELS_MAX,
    TopicNames,
    levels_per_attribute,
    locate_interest,
    locate_publication,
)
from veilcast.machine import Publication
from veilcast.sim.keyrings import make_keyring
from veilcast.topics import All, Conjunction, Domain, Equal, Integers, Label, Range, Reals, Schema, Strings
from veilcast.topics.elements import coarse_match, covers, queries
from veilcast.wire.mqtt import filter_matches
from veilcast.wire.mqtt.fields import check_filter, check_topic

EPOCH_US = 3_600_000_000
WORDS = ("red", "a/b", "+", "#", "50 %", "ä", "$x")


@cache
def keys_of(epoch: int) -> TopicKeys:
    keyring = make_keyring((TopicRecord("a/topic", Schema()),), EPOCH_US, (("a/topic", "subscriber"),), 1)
    return keyring.keys_at(keyring.grants[0].first + epoch).topic("a/topic")


def names(schema: Schema, *, paper: bool = False, epoch: int = 0) -> TopicNames:
    return TopicNames("vc", "a/topic", schema, None if paper else keys_of(epoch))


@st.composite
def schemas(draw: st.DrawFn) -> Schema:
    def domain(number: int) -> Domain:
        kind, bits = draw(st.sampled_from(["integers", "reals", "strings"])), draw(st.integers(1, 4))
        if kind == "strings":
            return Strings(f"a{number}")
        return Integers(f"a{number}", 0, 15, bits) if kind == "integers" else Reals(f"a{number}", 0, 16, bits)

    return Schema(tuple(domain(number) for number in range(draw(st.integers(0, 3)))))


@st.composite
def publications(draw: st.DrawFn, schema: Schema) -> Publication:
    pairs: list[tuple[str, Any]] = [Label("a/topic").pair]
    for domain in schema.domains:
        if draw(st.booleans()):
            value = draw(st.sampled_from(WORDS) if isinstance(domain, Strings) else st.integers(0, 15))
            pairs.append((domain.attribute, value))
    return Publication(tuple(pairs))


@st.composite
def interests(draw: st.DrawFn, schema: Schema) -> Conjunction:
    parts: list[Conjunction] = [Label("a/topic")]
    for domain in schema.domains:
        if draw(st.booleans()):
            continue
        if isinstance(domain, Strings):
            parts.append(Equal(domain.attribute, draw(st.sampled_from(WORDS))))
        else:
            low, high = sorted((draw(st.integers(0, 15)), draw(st.integers(0, 15))))
            parts.append(Range(domain.attribute, low, high))
    return All(*parts)


@given(st.data(), st.booleans())
def test_the_brokers_matching_equals_the_coarse_match_of_topics(data: st.DataObject, paper: bool) -> None:
    schema = data.draw(schemas())
    publication, interest = data.draw(publications(schema)), data.draw(interests(schema))
    called = names(schema, paper=paper)
    topic = called.topic(locate_publication(publication, schema))
    filters = called.filters(locate_interest(interest, schema))
    check_topic(topic)
    for each in filters:
        check_filter(each)
    coarse = coarse_match(covers(interest, schema), queries(publication, schema))
    brought = any(filter_matches(each, topic) for each in filters)
    asked = {constraint.attribute for constraint in interest.constraints}
    if asked <= {attribute for attribute, _ in publication.pairs}:
        assert brought == coarse
    assert brought or not coarse
    assert coarse or not interest.matches(publication)


@given(st.data())
def test_filters_of_many_attributes_are_few_and_miss_nothing(data: st.DataObject) -> None:
    schema = Schema(tuple(Integers(f"a{number}", 0, 1023, 10) for number in range(3)))
    values = [data.draw(st.integers(0, 1023)) for _ in schema.domains]
    ranges = [(data.draw(st.integers(0, value)), data.draw(st.integers(value, 1023))) for value in values]
    interest = All(Label("a/topic"), *(Range(f"a{number}", *ends) for number, ends in enumerate(ranges)))
    publication = Publication((Label("a/topic").pair, *((f"a{n}", value) for n, value in enumerate(values))))
    called = names(schema)
    filters = called.filters(locate_interest(interest, schema))
    assert len(filters) <= FILTERS_EACH
    assert any(filter_matches(each, called.topic(locate_publication(publication, schema))) for each in filters)


def test_the_worst_box_reaches_the_bound_and_a_single_range_is_exact() -> None:
    schema = Schema(tuple(Integers(f"a{number}", 0, 1023, 10) for number in range(3)))
    worst = All(Label("a/topic"), *(Range(f"a{number}", 1, 1022) for number in range(3)))
    assert FILTERS_EACH // 4 < len(names(schema).filters(locate_interest(worst, schema))) <= FILTERS_EACH
    line = Schema((Integers("a", 0, 1023, 10),))
    assert len(names(line).filters(locate_interest(All(Label("a/topic"), Range("a", 1, 1022)), line))) == 18


def test_a_broker_that_knows_the_vocabulary_finds_no_name_or_string_in_hardened_topics() -> None:
    schema = Schema((Strings("kind"), Integers("level", 0, 15, 4)))
    publication = Publication((Label("a/topic").pair, ("kind", "secret"), ("level", 9)))
    topic = names(schema).topic(locate_publication(publication, schema))
    assert "secret" not in topic
    assert "topic" not in topic
    assert topic.endswith("/1/0/0/1")
    another_topic = Secret(b"k" * 32)
    for word in ("a/topic", "secret", "kind", "level", "a/topic/secret"):
        assert not [name for name in keyless_names(word, [another_topic]) if name.hex() in topic]
    plain = names(schema, paper=True).topic(locate_publication(publication, schema))
    assert plain == "vc/on/a%2Ftopic/secret/1/0/0/1"


def test_hardened_names_of_two_epochs_share_only_prefix_and_bits() -> None:
    schema = Schema((Strings("kind"), Integers("level", 0, 15, 4)))
    place = ("word", 3)
    one, other = (names(schema, epoch=epoch).topic(place).split("/") for epoch in (0, 1))
    assert [a for a, b in zip(one, other, strict=True) if a == b] == ["vc", "on", "0", "0", "1", "1"]


def test_topics_of_one_hardened_topic_are_all_of_one_length() -> None:
    schema = Schema((Strings("kind"), Integers("level", 0, 15, 4)))
    called = names(schema)
    lengths = {len(called.topic((word, level))) for word in WORDS for level in range(16)}
    assert len(lengths) == 1


def test_numbers_share_the_levels_that_a_broker_accepts() -> None:
    assert levels_per_attribute(Schema((Reals("x", 0, 1, 52), Strings("s")))) == (BITS_MAX, 1)
    many = Schema(tuple(Reals(f"x{number}", 0, 1, 52) for number in range(32)))
    assert sum(levels_per_attribute(many)) <= LEVELS_MAX


@pytest.mark.parametrize(
    ("pairs", "words"),
    [
        ((("level", 1), ("level", 2)), "one value"),
        ((("level", 99),), "0 to 15"),
        ((("level", float("nan")),), "0 to 15"),
        ((("kind", 7),), "string"),
    ],
)
def test_an_inexpressible_publication_is_refused_with_an_explanation(
    pairs: tuple[tuple[str, Any], ...], words: str
) -> None:
    schema = Schema((Strings("kind"), Integers("level", 0, 15, 4)))
    with pytest.raises(LocalError, match=words):
        locate_publication(Publication((Label("a/topic").pair, *pairs)), schema)


@pytest.mark.parametrize(
    "interest",
    [
        All(Range("level", 0, 3), Range("level", 5, 9)),
        All(Equal("kind", "a"), Equal("kind", "b")),
        Range("kind", 0, 1),
        Equal("level", "x"),
    ],
)
def test_an_interest_that_nothing_can_match_is_refused(interest: Conjunction) -> None:
    with pytest.raises(LocalError):
        locate_interest(All(Label("a/topic"), interest), Schema((Strings("kind"), Integers("level", 0, 15, 4))))
