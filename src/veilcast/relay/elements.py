"""What the relay matches on: interests and publications as groups of elements, one reading for each profile.

Pure. `topics.elements` makes elements of constraints and values; here is what a server can do with sets of them.

*Hardened*. One group for each constraint of an interest, and the server's index wants a match in each: exactly the
coarse match of `topics`. The topic's own label goes without saying, since elements are keyed with the topic's key; it
stands only where nothing else is asked for, so that the server need not see what all of a topic's readers share.

*Paper*. All that a subscriber wants falls into one filter, which has no groups. The publication has them, one for each
declared attribute, and a filter matches if it has an element of each. So a subscriber also wants the wildcard of every
attribute that it says nothing of, and a publication has it in each group. Where a subscriber has several interests the
filter mixes them: one's range and the other's (`docs/papers.md`).
"""

from __future__ import annotations

from typing import TypeAlias

from veilcast.authority.record import TopicRecord
from veilcast.errors import LocalError
from veilcast.machine import Publication
from veilcast.topics import TOPIC, Conjunction, Domain, Equal, Label, Strings, covers, pair_elements, queries
from veilcast.topics.elements import prefix_element, string_element
from veilcast.wire.geometry import SUBJECTS_MAX

Groups: TypeAlias = tuple[tuple[bytes, ...], ...]


def wanted(interest: Conjunction, record: TopicRecord) -> Groups:
    """Hardened: a group for each constraint, any element of which will do."""
    label = Equal(TOPIC, record.topic)
    every = zip(interest.constraints, covers(interest, record.schema), strict=True)
    others = [cover for constraint, cover in every if constraint != label]
    return _few(tuple(others) or covers(Label(record.topic), record.schema))


def said(publication: Publication, record: TopicRecord) -> Groups:
    """Hardened: one group of all that the publication answers to."""
    return _few((queries(publication, record.schema),))


def poured(interest: Conjunction, record: TopicRecord) -> Groups:
    """Paper: one group, of what falls into the subscriber's filter."""
    every = list(zip(interest.constraints, covers(interest, record.schema), strict=True))
    elements: list[bytes] = []
    for domain in _attributes(record):
        asked = [cover for constraint, cover in every if constraint.attribute == domain.attribute]
        elements += [element for cover in asked for element in cover] or [_wildcard(domain)]
    return _few((tuple(dict.fromkeys(elements)),))


def asked(publication: Publication, record: TopicRecord) -> Groups:
    """Paper: a group for each attribute, with the wildcard in it."""
    groups = []
    for domain in _attributes(record):
        values = [value for attribute, value in publication.pairs if attribute == domain.attribute]
        elements = [element for value in values for element in pair_elements(domain, value)]
        groups.append(tuple(dict.fromkeys([*elements, _wildcard(domain)])))
    return _few(tuple(groups))


def _attributes(record: TopicRecord) -> tuple[Domain, ...]:
    return (Strings(TOPIC), *record.schema.domains)


def _wildcard(domain: Domain) -> bytes:
    """Of numbers, the prefix that all of them have; of strings the empty one, which nobody can publish."""
    if isinstance(domain, Strings):
        return string_element(domain.attribute, "")
    return prefix_element(domain.attribute, (0, 0))


def _few(groups: Groups) -> Groups:
    if sum(map(len, groups)) > SUBJECTS_MAX:
        raise LocalError(f"a subscription or publication has at most {SUBJECTS_MAX} elements: narrow its ranges")
    return groups
