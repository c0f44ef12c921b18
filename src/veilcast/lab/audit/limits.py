"""Limits of an audit: `auc>0.6`, `set<20`. A crossed limit fails the check."""

from __future__ import annotations

import operator
import re
from collections.abc import Mapping
from typing import Final

import msgspec

from veilcast.errors import ConfigError


class Limit(msgspec.Struct, frozen=True):
    name: str
    sign: str
    value: float

    def is_crossed(self, found: Mapping[str, float]) -> bool:
        """Whether the figure crosses the limit; a figure that is missing does not."""
        return self.name in found and bool(_SIGNS[self.sign](found[self.name], self.value))

    def __str__(self) -> str:
        return f"{self.name}{self.sign}{self.value:g}"


def parse_limit(text: str) -> Limit:
    match = _FORM.fullmatch(text)
    if match is None:
        raise ConfigError(f'--fail-if {text!r}: write it like "auc>0.6"')
    name, sign, value = match.groups()
    if name not in NAMES:
        raise ConfigError(f"--fail-if {text!r}: there is no {name}; there are {', '.join(NAMES)}")
    return Limit(name, sign, float(value))


NAMES: Final[dict[str, str]] = {
    "auc": "the best attacker's AUC, of any role",
    "auc_low": "the lower end of its interval, corrected for the number of attackers",
    "tpr": "the largest share of subscribers found where 1 % of others are named wrongly",
    "set": "the smallest anonymity set of a member, with any attacker",
    "named": "how many nodes are named, with a role",
    "publications": "how many publications are told apart",
    "sizes": "how many sizes are seen on some links and not on others",
    "odd_links": "how many links are unlike all others",
}
NEED_MEMBERS: Final = frozenset({"auc", "auc_low", "tpr", "set"})

_SIGNS: Final = {">": operator.gt, ">=": operator.ge, "<": operator.lt, "<=": operator.le}
_FORM: Final = re.compile(r"\s*([a-z_]+)\s*(>=|<=|>|<)\s*(\d+(?:\.\d+)?|\.\d+)\s*")
