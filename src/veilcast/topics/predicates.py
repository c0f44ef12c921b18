"""Predicates, the written form of interests (P4, figure 1): `[class,=,bar],[price,>,50]`.

1. A predicate is an attribute, an operator (= < <= > >=) and a value. `parse_predicates` makes them one conjunction.
2. A value is a number if it looks like one, otherwise a string. A value in quotes is always a string; within quotes a
   doubled quote stands for one. A string can only be compared by =.
3. Predicates on the numbers of one attribute speak of one value, as in P4: `[price,>,50],[price,<,60]` is one range.
   As two constraints, two pairs of one publication could meet them (`interests.Conjunction.matches`).
4. Predicates on the strings of one attribute stay apart, since a publication can have several topics:
   `[topic,=,a],[topic,=,b]`.

Pure; imports the errors, the machine contract and the interests.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Final, TypeAlias

from veilcast.errors import LocalError
from veilcast.machine import Value
from veilcast.topics.interests import All, Constraint, Equal, Number, Range

Predicate: TypeAlias = tuple[str, str, Value]
"""Attribute, operator, value."""


def parse_predicates(text: str) -> All:
    """Parse the notation of P4 and PADRES, as in `[class,=,bar],[price,>,50]`. Raises `LocalError` for other text."""
    if not isinstance(text, str):
        raise LocalError(f"predicates are a string, as {EXAMPLE!r}, not {type(text).__name__}")
    predicates: list[Predicate] = []
    rest = text
    while (found := _PREDICATE.match(rest)) is not None:
        value = found["value"]
        predicates.append((_strip_quotes(found["attribute"]), found["operator"], literal_value(value)))
        comma, rest = found["comma"], rest[found.end() :]
        if not comma and not rest:
            return make_interest(predicates)
        if not comma:
            break
    problem = f"cannot read {rest[:_SHOWN]!r}" if rest.strip() else "one is missing"
    raise LocalError(f"predicates: {problem}; write [attribute,operator,value] with commas between, as {EXAMPLE}")


def make_interest(predicates: Sequence[Predicate]) -> All:
    """The conjunction of these predicates; those on the numbers of one attribute become one range."""
    made: dict[tuple[str, str | None], Constraint] = {}
    for predicate in predicates:
        constraint = _make_constraint(*predicate)
        key = constraint.attribute, constraint.text if isinstance(constraint, Equal) else None
        known = made.get(key)
        made[key] = _intersect(known, constraint) if isinstance(known, Range) else constraint
    return All(*made.values())


def literal_value(text: str) -> Value:
    """Return the string if the text is quoted, otherwise what `number_or_text` returns."""
    return _strip_quotes(text) if _QUOTED.fullmatch(text) else number_or_text(text)


def number_or_text(text: str) -> Value:
    """Return a finite number if the text looks like one. "1_000" stays text: it is a number for Python alone."""
    if "_" in text:
        return text
    for kind in (int, float):
        try:
            number: Number = kind(text)
        except ValueError:
            continue
        return number if math.isfinite(number) else text
    return text


def _make_constraint(attribute: str, operator: str, value: Value) -> Constraint:
    if operator not in OPERATORS:
        raise LocalError(f"an operator is one of {' '.join(OPERATORS)}, not {operator!r}")
    if isinstance(value, str):
        if operator != "=":
            raise LocalError(f"{attribute!r} is compared with a string: only = can be asked of it, not {operator!r}")
        return Equal(attribute, value)
    low = value if operator in ("=", ">", ">=") else None
    high = value if operator in ("=", "<", "<=") else None
    return Range(attribute, low, high, low_open=operator == ">", high_open=operator == "<")


def _intersect(one: Range, other: Constraint) -> Range:
    """The values within both. Raises `LocalError` if there are none."""
    assert isinstance(other, Range)
    lows = [(each.low, each.low_open) for each in (one, other) if each.low is not None]
    highs = [(-each.high, each.high_open) for each in (one, other) if each.high is not None]
    low, low_open = max(lows, default=(None, False))
    high, high_open = max(highs, default=(None, False))
    return Range(one.attribute, low, None if high is None else -high, low_open=low_open, high_open=high_open)


def _strip_quotes(text: str) -> str:
    """Return the content of quotes, or text without quotes as it is."""
    if not _QUOTED.fullmatch(text):
        return text
    return text[1:-1].replace(2 * text[0], text[0])


OPERATORS: Final = ("=", "<", "<=", ">", ">=")
EXAMPLE: Final = "[class,=,bar],[price,>,50]"

_SHOWN: Final = 40
"""Characters of a mistake that its error repeats."""

_QUOTED: Final = re.compile(r"\"(?:[^\"]|\"\")*\"|'(?:[^']|'')*'")
_PREDICATE: Final = re.compile(
    rf"\s*\[\s*(?P<attribute>{_QUOTED.pattern}|[^\[\],\"']*?)\s*,\s*(?P<operator>[^\[\],\"']*?)\s*"
    rf",\s*(?P<value>{_QUOTED.pattern}|(?![\"'])[^\[\],]*?)\s*\]\s*(?P<comma>,?)"
)
