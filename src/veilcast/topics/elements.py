"""Interests and publications as sets of elements, which a node can match on without understanding them.

Pure; imports the domains and the covers. Each constraint becomes a cover, and any one element of the cover meets it.
Each pair of a publication becomes the elements it answers to: the prefixes of a number's cell, or the string. A
publication matches coarsely if it shares an element with every cover. `coarse_match` says so in one line and is the
oracle of every index. For values within their domains, which are all that may be published, it passes everything that
`Conjunction.matches` does (completeness), and beyond that only values that share a cell with an end of a range.

An element is bytes that name an attribute and a prefix of a cell, or an attribute and a string, and nothing else. The
encoding is injective: a kind byte, the attribute with its length in front, and then either a level with exactly the
bytes that the level needs, or the string to the end. Modes turn elements into keyed tokens before other nodes see them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import Final, TypeAlias

from veilcast.errors import LocalError
from veilcast.machine import Publication, Value
from veilcast.topics.domain import Domain, Integers, Reals, Schema, Strings
from veilcast.topics.dyadic import DyadicNode, cover_range, prefixes_of
from veilcast.topics.interests import Conjunction, Constraint, Equal, Range, check_text

Cover: TypeAlias = tuple[bytes, ...]
"""The elements of one constraint; any of them meets it."""


def covers(interest: Conjunction, schema: Schema) -> tuple[Cover, ...]:
    """One cover for each constraint, in the interest's order."""
    return tuple(_cover(constraint, schema.find(constraint.attribute)) for constraint in interest.constraints)


def queries(publication: Publication, schema: Schema) -> tuple[bytes, ...]:
    """All elements a publication answers to, without repeats, in the order of its pairs: the publisher's view.

    A value outside its attribute's domain raises `LocalError`. By definition a range that reaches past the domain
    matches it, but no cover does, so it must not be published. An attribute that this topic does not declare adds no
    element: another topic of the same publication declares it (`schema_check.check_publication`).
    """
    return _merge_groups(pair_elements(domain, value) for domain, value in _declared_pairs(publication, schema))


def queries_received(publication: Publication, schema: Schema) -> tuple[bytes, ...]:
    """The same for a stranger's publication: pairs that its publisher should have refused are ignored.

    One such pair must not keep the other pairs from their subscribers.
    """
    return _merge_groups(_elements_or_none(domain, value) for domain, value in _declared_pairs(publication, schema))


def pair_elements(domain: Domain, value: Value) -> tuple[bytes, ...]:
    """The elements one pair answers to. Raises `LocalError` for a value outside the domain."""
    if isinstance(domain, Strings):
        if not isinstance(value, str):
            raise LocalError(f"{domain.attribute!r} must be a string")
        check_text(value)
        return (string_element(domain.attribute, value),)
    return tuple(prefix_element(domain.attribute, node) for node in prefixes_of(domain.cell(value), domain.bits))


def coarse_match(covers: Collection[Cover], queries: Collection[bytes]) -> bool:
    """True if every cover has an element among the queries."""
    return all(any(element in queries for element in cover) for cover in covers)


def string_element(attribute: str, text: str) -> bytes:
    return _header(_STRING, attribute) + text.encode()


def prefix_element(attribute: str, node: DyadicNode) -> bytes:
    level, prefix = node
    return _header(_PREFIX, attribute) + bytes((level,)) + prefix.to_bytes((level + 7) // 8, "big")


def _declared_pairs(publication: Publication, schema: Schema) -> Iterator[tuple[Domain, Value]]:
    for attribute, value in publication.pairs:
        domain = schema.find(attribute)
        if domain is not None:
            yield domain, value


def _elements_or_none(domain: Domain, value: Value) -> tuple[bytes, ...]:
    try:
        return pair_elements(domain, value)
    except LocalError:
        return ()


def _merge_groups(groups: Iterable[tuple[bytes, ...]]) -> tuple[bytes, ...]:
    return tuple(dict.fromkeys(element for group in groups for element in group))


def _cover(constraint: Constraint, domain: Domain | None) -> Cover:
    attribute = constraint.attribute
    match constraint, domain:
        case _, None:
            raise LocalError(f"the topic declares no attribute {attribute!r}")
        case Equal(), Strings():
            return (string_element(attribute, constraint.text),)
        case Range(), Integers() | Reals():
            first, last = domain.cells(constraint)
            return tuple(prefix_element(attribute, node) for node in cover_range(first, last, domain.bits))
        case _:
            wanted = "an equality" if isinstance(domain, Strings) else "a range"
            raise LocalError(f"{attribute!r} must be constrained by {wanted}, as the topic declares it")


def _header(kind: int, attribute: str) -> bytes:
    name = attribute.encode()
    return bytes((kind, len(name))) + name


_STRING: Final = 1
_PREFIX: Final = 2
