"""Keyed elements: no two topics, epochs or modes have one in common."""

from __future__ import annotations

from support.authority_members import NOW, OTHER, TOPIC, make_authority_members
from veilcast.core import match_elements

PEOPLE = make_authority_members()


def test_elements_of_two_topics_are_never_the_same() -> None:
    assert match_elements.qualify_element("a", b"bc") != match_elements.qualify_element("ab", b"c")
    keys = [
        match_elements.derive_element_key(PEOPLE.bob.keys_at(epoch).topic(topic), mode).reveal()
        for epoch in (NOW, NOW + 1)
        for topic in (TOPIC, OTHER)
        for mode in (b"relay", b"tree")
    ]
    assert len(set(keys)) == len(keys)


def test_all_members_of_a_topic_key_an_element_alike_and_each_key_differently() -> None:
    alice, bob = (
        match_elements.derive_element_key(each.keys_at(NOW).topic(TOPIC), b"tree")
        for each in (PEOPLE.alice, PEOPLE.bob)
    )
    other = match_elements.derive_element_key(PEOPLE.bob.keys_at(NOW).topic(OTHER), b"tree")
    groups = ((b"x", b"y"), (b"x",))
    hers, his, others = (match_elements.key_groups(key, groups, 16) for key in (alice, bob, other))
    assert hers == his
    assert hers[0][0] == hers[1][0] != hers[0][1], "one element has one name, wherever it stands"
    assert not {each for group in hers for each in group} & {each for group in others for each in group}
    assert {len(each) for group in hers for each in group} == {16}
    assert match_elements.qualify_groups("a", groups) == tuple(
        tuple(match_elements.qualify_element("a", element) for element in group) for group in groups
    )
