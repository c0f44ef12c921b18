"""Traces of interactions, as text: who wrote to whom, and when.

A line has a sender, a receiver and a time, with commas between; the first line is a heading. Lines that are not so are
counted, the first of them are named with what is wrong, and none is taken: a trace with some of them is a trace. Users
are renumbered from 0, in the order of their names as numbers; they are numbers, and stay so. Interactions come in the
order of senders, and of each in the order of time.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Final, Literal, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from veilcast.errors import ConfigError

Clock: TypeAlias = Literal["hours", "stamps"]
"""Hours since a beginning; or month/day/year and a time of twelve hours, as "4/15/04 2:56 PM"."""


class Refused(NamedTuple):
    line: int
    """The heading is line 1."""
    why: str


class Trace(NamedTuple):
    publisher: NDArray[np.int32]
    subscriber: NDArray[np.int32]
    hour: NDArray[np.float64]
    """Since the first."""
    users: int
    refused: int
    """Lines."""
    named: tuple[Refused, ...]
    """The first of those."""

    def told(self) -> str:
        """What was refused, in a line."""
        first = "; ".join(f"line {one.line}: {one.why}" for one in self.named)
        more = f"; and {self.refused - len(self.named)} more" if self.refused > len(self.named) else ""
        return f"{self.refused} lines are no interactions: {first}{more}" if self.refused else "every line is one"


def parse(text: bytes, clock: Clock) -> Trace:
    """Raises `ConfigError` if nothing is left."""
    read = _CLOCKS[clock]
    ends: list[tuple[int, int]] = []
    times: list[float] = []
    named: list[Refused] = []
    refused = 0
    for number, line in enumerate(text.splitlines()[1:], start=2):
        try:
            sender, receiver, time = _fields(line)
            times.append(read(time))
            ends.append((sender, receiver))
        except ValueError as error:
            refused += 1
            if len(named) < NAMED_MAX:
                named.append(Refused(number, str(error)))
    if not ends:
        raise ConfigError("there is no interaction in it")
    known, numbers = np.unique(np.array(ends, np.int64), return_inverse=True)
    publisher, subscriber = numbers.reshape(-1, 2).T.astype(np.int32)
    hour = np.array(times)
    hour -= hour.min()
    order = np.lexsort((hour, publisher))
    return Trace(publisher[order], subscriber[order], hour[order], known.size, refused, tuple(named))


def _fields(line: bytes) -> tuple[int, int, str]:
    fields = line.split(b",")
    if len(fields) != 3:
        raise ValueError(f"{len(fields)} fields, not 3")
    users = []
    for field, name in zip(fields, ("sender", "receiver"), strict=False):
        if not _USER.fullmatch(field):
            raise ValueError(f"the {name} is no user")
        users.append(int(field))
    if users[0] == users[1]:
        raise ValueError("sender and receiver are one")
    try:
        return users[0], users[1], fields[2].decode("ascii")
    except UnicodeDecodeError as error:
        raise ValueError("the time is none") from error


def _hours(text: str) -> float:
    if not _HOURS.fullmatch(text):
        raise ValueError("the time is none")
    return float(text)


def _stamped(text: str) -> float:
    try:
        # Whatever the zone was, the hours between are the same, but for those of summer time.
        return datetime.strptime(text, "%m/%d/%y %I:%M %p").replace(tzinfo=UTC).timestamp() / 3600
    except ValueError as error:
        raise ValueError("the time is none") from error


NAMED_MAX: Final = 5
_USER: Final = re.compile(rb"\d{1,18}")
_HOURS: Final = re.compile(r"\d{1,9}(\.\d{1,9})?")
_CLOCKS: Final[Mapping[Clock, Callable[[str], float]]] = {"hours": _hours, "stamps": _stamped}
