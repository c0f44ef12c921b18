"""Attributes that depend on another one, their master, as a configuration says (P3, end of IV.B).

Pure. The fakes of the master are made as ever; those of a slave are drawn given what its master is in the same
candidate (`dependent`). Else an event would be told by what goes together: a large volume at a small price.

- A number of a number follows a line: `line`, slope and intercept, with a `deviation` around it; or all three fitted to
  the histories of both, which are then of the same moments.
- A word of a word follows `given`: for each value of the master, how likely each of its own is.

**paper**: on the line itself, where the truth is the only one that is not.

What a slave is beyond its master is drawn anew at each step; where that lasts in truth, it tells.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from veilcast.errors import ConfigError, LocalError
from veilcast.foil.config import Attribute, FoilConfig
from veilcast.foil.dependent import Conditional, Given, Linear
from veilcast.foil.making import wrong
from veilcast.foil.span import Span
from veilcast.topics import Integers, Reals, Schema, Strings


class Slave(NamedTuple):
    master: int
    """Its place among the attributes of the topic."""
    law: Conditional[Any]


def slave_of(domain: Strings | Integers | Reals, schema: Schema, config: FoilConfig) -> Slave | None:
    """None for an attribute without a master, or where nothing is foiled."""
    told = config.attributes.get(domain.attribute, Attribute())
    if not told.master or not config.k_p:
        return None
    place = next((at for at, each in enumerate(schema.domains) if each.attribute == told.master), None)
    if place is None:
        raise wrong(domain, f"has a master {told.master!r} that its topic does not declare")
    master, theirs = schema.domains[place], config.attributes.get(told.master, Attribute())
    if theirs.master:
        raise wrong(domain, f"has a master {told.master!r} that has a master itself")
    if isinstance(domain, Strings) != isinstance(master, Strings):
        raise wrong(domain, f"cannot follow {told.master!r}: a number follows a number, and a word a word")
    if isinstance(domain, Strings):
        return Slave(place, _given(domain, told, theirs))
    return Slave(place, _line(domain, told, theirs, paper=config.profile == "paper"))


def _line(domain: Integers | Reals, told: Attribute, theirs: Attribute, *, paper: bool) -> Linear:
    span = Span(domain.low, domain.high, 0 if isinstance(domain, Integers) else None)
    if told.line is not None:
        if not told.deviation and not paper:
            raise wrong(domain, "has a line, and needs the deviation around it: what is on the line is a fake")
        return Linear(*told.line, 0.0 if paper else told.deviation, span)
    if not told.history or len(told.history) != len(theirs.history):
        raise wrong(domain, f"follows {told.master!r}: give a line, or a history of both, as long as one another")
    try:
        found = Linear.fitted(np.array(theirs.history), np.array(told.history), span)
    except LocalError as error:
        raise wrong(domain, f"follows {told.master!r}: {error}") from error
    return Linear(found.slope, found.intercept, 0.0 if paper else told.deviation or found.deviation, span)


def _given(domain: Strings, told: Attribute, theirs: Attribute) -> Given:
    if not told.values or not theirs.values:
        raise wrong(domain, f"follows {told.master!r}: both need their values")
    if len(told.given) != len(theirs.values) or any(len(row) != len(told.values) for row in told.given):
        raise wrong(domain, "needs in given, for each value of its master, how likely each of its own is")
    try:
        return Given(told.given)
    except ConfigError as error:
        raise wrong(domain, f"has in given what cannot be: {error}") from error
