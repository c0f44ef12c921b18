"""The topic of an interest that names none."""

from __future__ import annotations

import random

import pytest

from veilcast.authority import issuer
from veilcast.authority.keyring import TopicKeys
from veilcast.authority.topic_record import TopicRecord
from veilcast.errors import LocalError
from veilcast.node.member_records import complete_topic
from veilcast.topics import All, Integers, Label, Range, Schema


@pytest.fixture(scope="module")
def topics() -> dict[str, TopicKeys]:
    entropy = random.Random(1).randbytes
    authority = issuer.create(3_600_000_000, entropy)
    for name, attributes in (("air", ("temp", "wind")), ("sea", ("temp",)), ("news", ())):
        schema = Schema(tuple(Integers(attribute, 0, 63, 6) for attribute in attributes))
        authority = issuer.declare(authority, TopicRecord(topic=name, schema=schema), entropy)
    _, keyring = issuer.grant_ready(
        authority, "alice", [(name, "subscriber") for name in ("air", "sea", "news")], 7, 2, entropy
    )
    return keyring.keys_at(7).topics


def test_an_interest_with_a_topic_is_not_changed(topics: dict[str, TopicKeys]) -> None:
    for interest in (Label("air"), All(Label("elsewhere"), Range("depth", 1, 2))):
        assert complete_topic(interest, topics) is interest


def test_the_only_topic_that_declares_the_attributes_is_added(topics: dict[str, TopicKeys]) -> None:
    wanted = All(Range("wind", 3, None), Range("temp", 20, 25))
    assert complete_topic(wanted, topics).constraints == (Label("air").constraints[0], *wanted.constraints)


@pytest.mark.parametrize(
    ("attribute", "problem"),
    [
        ("temp", "temp may be of air, sea; name"),
        ("depth", "no topic .* declares depth; name"),
        ("tmp", "declares tmp; did you mean .temp"),
    ],
)
def test_where_none_or_several_could_be_meant_nothing_is_guessed(
    attribute: str, problem: str, topics: dict[str, TopicKeys]
) -> None:
    with pytest.raises(LocalError, match=problem):
        complete_topic(Range(attribute, 1, 2), topics)
