"""Match elements: interests and publications as groups of elements that only a topic's members can name.

`topics.elements` makes elements of constraints and values. This module groups them so that a matching node can compare
sets, with one reading for each profile, and keys them. The modes that match on elements share it.

*Hardened*. An interest has one group for each constraint, and an index requires a match in each group: exactly the
coarse match of `topics`. The topic's own label is left out, since elements are keyed with the topic's key. It is used
only if the interest has no other constraint, so that matching nodes need not see an element that all subscribers of a
topic share. The key is the epoch's: tags of two epochs have nothing in common.

*Paper*. All that a subscriber wants falls into one filter, which has no groups. The publication has groups, one for
each declared attribute, and a filter matches if it has an element of each group. So a subscriber also wants the
wildcard of every attribute that its interest leaves out, and a publication has the wildcard in each group. If a
subscriber has several interests the filter mixes them: the range of one and that of another (`docs/papers.md`).
Elements are plain, with the topic's name in front.
"""

from __future__ import annotations

from typing import TypeAlias

from veilcast.authority.keyring import TopicKeys
from veilcast.authority.topic_record import TopicRecord
from veilcast.crypto.derive import derive
from veilcast.crypto.secret import Secret
from veilcast.errors import LocalError
from veilcast.machine import Publication
from veilcast.topics import TOPIC, Conjunction, Domain, Equal, Label, Strings, covers, pair_elements, queries
from veilcast.topics.elements import prefix_element, string_element
from veilcast.wire.geometry import SUBJECTS_MAX

ElementGroups: TypeAlias = tuple[tuple[bytes, ...], ...]


# --- elements in groups -----------------------------------------------------------------------------------------------


def subscription_elements(interest: Conjunction, record: TopicRecord) -> ElementGroups:
    """Hardened: a group for each constraint. One element of each group must match."""
    label = Equal(TOPIC, record.topic)
    every = zip(interest.constraints, covers(interest, record.schema), strict=True)
    others = [cover for constraint, cover in every if constraint != label]
    return _check_count(tuple(others) or covers(Label(record.topic), record.schema))


def publication_elements(publication: Publication, record: TopicRecord) -> ElementGroups:
    """Hardened: one group of all elements that the publication answers to."""
    return _check_count((queries(publication, record.schema),))


def paper_subscription_elements(interest: Conjunction, record: TopicRecord) -> ElementGroups:
    """Paper: one group, the content of the subscriber's filter."""
    every = list(zip(interest.constraints, covers(interest, record.schema), strict=True))
    elements: list[bytes] = []
    for domain in _attributes(record):
        asked = [cover for constraint, cover in every if constraint.attribute == domain.attribute]
        elements += [element for cover in asked for element in cover] or [_wildcard(domain)]
    return _check_count((tuple(dict.fromkeys(elements)),))


def paper_publication_elements(publication: Publication, record: TopicRecord) -> ElementGroups:
    """Paper: a group for each attribute, with the wildcard in it."""
    groups = []
    for domain in _attributes(record):
        values = [value for attribute, value in publication.pairs if attribute == domain.attribute]
        elements = [element for value in values for element in pair_elements(domain, value)]
        groups.append(tuple(dict.fromkeys([*elements, _wildcard(domain)])))
    return _check_count(tuple(groups))


# --- elements as they travel ------------------------------------------------------------------------------------------


def derive_element_key(keys: TopicKeys, mode: bytes) -> Secret:
    """The key of a topic's elements in one epoch and mode.

    Every member that reads the topic has it, and nobody else.
    """
    return derive(keys.content, b"vc/" + mode + b"-subject")


def key_element(key: Secret, element: bytes, size: int = 32) -> bytes:
    """Hardened: an element as only members of its topic can name it, in this epoch."""
    return derive(key, b"vc/element", element, size=size).reveal()


def qualify_element(topic: str, element: bytes) -> bytes:
    """Paper: an element of one topic among all, with the topic's name and its length in front."""
    name = topic.encode()
    return len(name).to_bytes(2, "big") + name + element


def key_groups(key: Secret, groups: ElementGroups, size: int = 32) -> ElementGroups:
    return tuple(tuple(key_element(key, element, size) for element in group) for group in groups)


def qualify_groups(topic: str, groups: ElementGroups) -> ElementGroups:
    return tuple(tuple(qualify_element(topic, element) for element in group) for group in groups)


def _attributes(record: TopicRecord) -> tuple[Domain, ...]:
    return (Strings(TOPIC), *record.schema.domains)


def _wildcard(domain: Domain) -> bytes:
    """For numbers, the prefix of all values; for strings the empty one, which cannot be published."""
    if isinstance(domain, Strings):
        return string_element(domain.attribute, "")
    return prefix_element(domain.attribute, (0, 0))


def _check_count(groups: ElementGroups) -> ElementGroups:
    if sum(map(len, groups)) > SUBJECTS_MAX:
        raise LocalError(f"a subscription or publication has at most {SUBJECTS_MAX} elements: narrow its ranges")
    return groups
