"""Covering (P4, section 2): which interest covers which, and which advertisement overlaps which subscription.

An interest is a conjunction of constraints of `topics`, which defines what a match is. This module answers what brokers
need to know to avoid forwarding redundant claims:

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

from veilcast.machine import Publication
from veilcast.topics import Conjunction, Constraint, Equal, Range


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
