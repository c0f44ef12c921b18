"""Predicates (P4, Fig. 1): `[class,=,bar],[price,>,50]` as interests, and which interest covers which.

A predicate is an attribute, an operator and a value, and becomes a constraint of `topics`, which defines what a match
is. This module answers what brokers need to know to avoid forwarding redundant claims:

- s covers t if s matches everything that t matches. A publication meets a constraint by any of its pairs. So s covers t
  exactly if every constraint of s contains a constraint of t. (If one contains none, take for each constraint of t a
  value outside it: these pairs match t and not s.)
- An advertisement says what its publisher will publish. A publication conforms if the advertisement matches it and each
  of its pairs lies within one of the advertisement's constraints. An advertisement overlaps a subscription if some
  conforming publication can match: if every constraint of the subscription intersects one of the advertisement's.

Ranges are treated as ranges of real numbers. Two ranges that differ by less than any number that a publication can hold
count as different: some covering is missed then, and nothing is ever lost.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, TypeAlias

from veilcast.errors import LocalError
from veilcast.machine import Publication, Value
from veilcast.topics import All, Conjunction, Constraint, Equal, Range

Predicate: TypeAlias = tuple[str, str, Value]
"""Attribute, operator (=, <, <=, >, >=), value."""


def make_interest(predicates: Sequence[Predicate]) -> Conjunction:
    """The conjunction of these predicates."""
    return All(*(make_constraint(*predicate) for predicate in predicates))


def make_constraint(attribute: str, operator: str, value: Value) -> Constraint:
    if isinstance(value, str):
        if operator != "=":
            raise LocalError(f"{attribute!r} is compared with a string: only = can be asked of it, not {operator!r}")
        return Equal(attribute, value)
    match operator:
        case "=":
            return Range(attribute, value, value)
        case ">" | ">=":
            return Range(attribute, value, None, low_open=operator == ">")
        case "<" | "<=":
            return Range(attribute, None, value, high_open=operator == "<")
    raise LocalError(f"an operator is one of = < <= > >=, not {operator!r}")


def parse_predicates(text: str) -> Conjunction:
    """Parse the notation of the paper and of PADRES: `[class,=,bar],[price,>,50]`. A number in quotes is a string."""
    found = list(_PREDICATE.finditer(text))
    if not found or _rest(text, found).strip(" ,"):
        raise LocalError("predicates are written [attribute,operator,value], with commas between them")
    return make_interest([(each["attribute"], each["operator"], _value(each["value"])) for each in found])


def covers(s: Conjunction, t: Conjunction) -> bool:
    """True if s matches everything that t matches."""
    constraints = t.constraints
    return all(any(is_within(inner, outer) for inner in constraints) for outer in s.constraints)


def conforms(publication: Publication, advertisement: Conjunction) -> bool:
    """True if the publication was advertised."""
    advertised = advertisement.constraints
    return advertisement.matches(publication) and all(
        any(attribute == each.attribute and each.admits(value) for each in advertised)
        for attribute, value in publication.pairs
    )


def overlaps(advertisement: Conjunction, subscription: Conjunction) -> bool:
    """True if a publication that conforms can match."""
    advertised = advertisement.constraints
    return all(any(intersects(wanted, each) for each in advertised) for wanted in subscription.constraints)


def covers_advertisement(a: Conjunction, b: Conjunction) -> bool:
    """True if everything that conforms to b conforms to a, as far as single constraints show it."""
    return covers(a, b) and all(any(is_within(inner, outer) for outer in a.constraints) for inner in b.constraints)


def is_within(inner: Constraint, outer: Constraint) -> bool:
    """True if all values of `inner` are values of `outer`."""
    if inner.attribute != outer.attribute:
        return False
    match inner, outer:
        case Equal(), Equal():
            return inner.text == outer.text
        case Range(), Range():
            above = outer.low is None or (
                inner.low is not None
                and (outer.low < inner.low or (outer.low == inner.low and (inner.low_open or not outer.low_open)))
            )
            below = outer.high is None or (
                inner.high is not None
                and (inner.high < outer.high or (inner.high == outer.high and (inner.high_open or not outer.high_open)))
            )
            return above and below
    return False


def intersects(one: Constraint, other: Constraint) -> bool:
    """True if some value meets both constraints."""
    if one.attribute != other.attribute:
        return False
    match one, other:
        case Equal(), Equal():
            return one.text == other.text
        case Range(), Range():
            return _reaches(one, other) and _reaches(other, one)
    return False


def _reaches(lower: Range, upper: Range) -> bool:
    """True if the upper end of `lower` comes up to the lower end of `upper`."""
    if lower.high is None or upper.low is None:
        return True
    return upper.low < lower.high or (upper.low == lower.high and not (upper.low_open or lower.high_open))


def _value(text: str) -> Value:
    text = text.strip()
    if text[:1] in "'\"" and len(text) >= 2 and text[-1] == text[0]:
        return text[1:-1]
    for number in (int, float):
        try:
            return number(text)
        except ValueError:
            continue
    return text


def _rest(text: str, found: Sequence[re.Match[str]]) -> str:
    """The text between and around the predicates."""
    ends = [0, *(each.end() for each in found)]
    starts = [*(each.start() for each in found), len(text)]
    return "".join(text[end:start] for end, start in zip(ends, starts, strict=True))


_PREDICATE: Final = re.compile(
    r"\[\s*(?P<attribute>[^\],]*?)\s*,\s*(?P<operator>[^\],]*?)\s*,\s*(?P<value>\"[^\"]*\"|'[^']*'|[^\],]*?)\s*\]"
)
