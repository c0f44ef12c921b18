"""The two predicate codecs, compared with the plain definition of a match; and hostile bytes."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support import broker_keyrings
from support.broker_keyrings import EPOCH, SCHEMA, START, keys_of
from veilcast.authority.topic_record import Profile
from veilcast.brokers.routing import claims
from veilcast.brokers.routing.claim_semantics import PlainPredicates, TagGroups, TagPredicates, predicate_codec
from veilcast.errors import ForgedError, LocalError, MalformedError
from veilcast.machine import Publication
from veilcast.topics import TOPIC, All, Conjunction, Constraint, Equal, Label, Range, coarse_match, covers, queries
from veilcast.wire import geometry as g
from veilcast.wire.brokers import Claim

PROFILES: list[Profile] = ["paper", "hardened"]
LABEL = Label(broker_keyrings.TOPIC)
KINDS = ("red", "green", "blue")


@st.composite
def interests(draw: st.DrawFn) -> Conjunction:
    parts: list[Constraint] = []
    if draw(st.booleans()):
        low = draw(st.integers(0, 15))
        parts.append(Range("level", low, draw(st.integers(low, 15))))
    if draw(st.booleans()):
        parts.append(Equal("kind", draw(st.sampled_from(KINDS))))
    if draw(st.booleans()):
        low = draw(st.integers(0, 999))
        parts.append(Range("price", low, draw(st.one_of(st.none(), st.integers(low + 1, 1000)))))
    return All(*LABEL.constraints, *parts)


publications = st.builds(
    lambda level, kind, price: Publication(
        ((TOPIC, broker_keyrings.TOPIC), ("level", level), ("kind", kind), ("price", float(price)))
    ),
    st.integers(0, 15),
    st.sampled_from(KINDS),
    st.integers(0, 1000),
)


def read(profile: Profile, interest: Conjunction) -> Any:
    keys, language = keys_of(1, profile, "subscriber"), predicate_codec(profile)
    return language.decode_subscription(claim(profile, language.encode_subscription(keys, interest)))


def claim(profile: Profile, words: bytes) -> Claim:
    keys = keys_of(1, profile, "subscriber")
    return claims.make_subscription(keys, bytes(16), EPOCH, START, words, bytes(32))


@given(interests(), publications)
@settings(max_examples=40)
def test_in_paper_brokers_match_by_the_plain_definition(interest: Conjunction, publication: Publication) -> None:
    language = PlainPredicates()
    said = language.decode_publication(language.encode_publication(keys_of(0, "paper"), publication))
    assert language.matches(said, read("paper", interest)) == interest.matches(publication)


@given(interests(), publications)
@settings(max_examples=40)
def test_in_hardened_brokers_match_as_coarsely_as_topics(interest: Conjunction, publication: Publication) -> None:
    language = TagPredicates()
    said = language.decode_publication(language.encode_publication(keys_of(0, "hardened"), publication))
    matched = language.matches(said, read("hardened", interest))
    assert matched == coarse_match(covers(interest, SCHEMA), queries(publication, SCHEMA))
    assert matched or not interest.matches(publication), "nothing that is wanted is missed"


@pytest.mark.parametrize("profile", PROFILES)
@given(s=interests(), t=interests(), publication=publications)
@settings(max_examples=40)
def test_a_covering_interest_matches_everything_the_covered_one_does(
    profile: Profile, s: Conjunction, t: Conjunction, publication: Publication
) -> None:
    language: Any = predicate_codec(profile)
    said = language.decode_publication(language.encode_publication(keys_of(0, profile), publication))
    one, other = read(profile, s), read(profile, t)
    if language.covers(one, other) and language.matches(said, other):
        assert language.matches(said, one)
    assert language.covers(one, one)


@pytest.mark.parametrize("profile", PROFILES)
@given(interest=interests(), publication=publications)
@settings(max_examples=40)
def test_everything_published_on_a_topic_conforms_to_its_advertisement(
    profile: Profile, interest: Conjunction, publication: Publication
) -> None:
    keys, language = keys_of(0, profile), predicate_codec(profile)
    made = claims.make_advertisement(keys, bytes(16), EPOCH, START, language.encode_advertisement(keys), bytes(32))
    advertisement: Any = language.decode_advertisement(made)
    said: Any = language.decode_publication(language.encode_publication(keys, publication))
    assert language.conforms(said, advertisement)
    assert language.overlaps(advertisement, read(profile, interest))


def test_in_hardened_a_whole_topic_subscription_covers_all_and_equal_ones_cover_each_other() -> None:
    language = TagPredicates()
    whole, some = read("hardened", LABEL), read("hardened", All(LABEL, Range("level", 3, 9)))
    assert language.covers(whole, some)
    assert not language.covers(some, whole)
    assert some == read("hardened", All(LABEL, Range("level", 3, 9)))
    assert all(len(group) in (1, 2, 4, 8, 16) for group in some.groups)


def test_two_epochs_and_two_topics_have_no_tag_in_common() -> None:
    language, wish = TagPredicates(), Range("level", 3, 9)

    def tags(topic: str, epoch: int) -> set[bytes]:
        keys = keys_of(1, "hardened", "subscriber", topic, epoch)
        tagged = msgspec.msgpack.decode(language.encode_subscription(keys, All(Label(topic), wish)), type=TagGroups)
        return {tagged.topic}.union(*tagged.groups)

    sets = [
        tags(topic, epoch) for topic in (broker_keyrings.TOPIC, broker_keyrings.OTHER) for epoch in (EPOCH, EPOCH + 1)
    ]
    assert len(set.union(*sets)) == sum(map(len, sets))


@pytest.mark.parametrize("profile", PROFILES)
@given(words=st.binary(min_size=1, max_size=200))
@settings(max_examples=40)
def test_hostile_predicates_raise_malformed_error_only(profile: Profile, words: bytes) -> None:
    language = predicate_codec(profile)
    for act in (
        lambda: language.decode_subscription(claim(profile, words)),
        lambda: language.decode_publication(words),
    ):
        try:
            act()
        except MalformedError:
            continue


def test_predicates_are_decoded_as_their_own_kind_only() -> None:
    tag = bytes(g.TAG)
    encode = msgspec.msgpack.encode
    for words in ((tag, [[tag], [tag]]), (tag, [])):
        with pytest.raises(MalformedError, match="one group"):
            TagPredicates().decode_publication(encode(words))
    keys = keys_of(0, "hardened")
    for data, error in ((encode((tag, [])), ForgedError), (encode(b"not tags"), MalformedError)):
        made = claims.make_advertisement(keys, bytes(16), EPOCH, START, data, bytes(32))
        with pytest.raises(error):
            TagPredicates().decode_advertisement(made)
    with pytest.raises(MalformedError, match="nothing else"):
        PlainPredicates().decode_subscription(
            claim("paper", encode(([{"type": "equal", "attribute": "a", "text": "b"}], ["c"])))
        )


def test_an_oversized_predicate_is_refused_locally() -> None:
    long = Publication((("topic", broker_keyrings.TOPIC), *((("kind", f"{number:0200}")) for number in range(60))))
    with pytest.raises(LocalError, match="brokers"):
        PlainPredicates().encode_publication(keys_of(0, "paper"), long)
