"""Traces of interactions, as text or as columns: a sender, a receiver and a time.

A line has a sender, a receiver and a time, separated by commas; the first line is a heading. Malformed lines are
counted, the first of them are reported with the reason, and none is used: a trace with some of them is still a trace.
The same holds for rows of columns. Users are renumbered from 0, in the order of their names as numbers; they are
numbers and stay so. Interactions are sorted by sender, then by time.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from io import BytesIO
from typing import Final, Literal, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from veilcast.errors import ConfigError

Clock: TypeAlias = Literal["hours", "stamps", "seconds", "dates"]
"""Hours since a beginning; month/day/year and a time of twelve hours, as "4/15/04 2:56 PM"; seconds since 1970, ten
digits before the point; or ISO 8601 dates, "2004-04-15T14:56"."""


class RefusedLine(NamedTuple):
    line: int
    """Line number; the heading is line 1. For columns, the row from 1."""
    why: str


class InteractionTrace(NamedTuple):
    publisher: NDArray[np.int32]
    subscriber: NDArray[np.int32]
    hour: NDArray[np.float64]
    """Hours since the first interaction."""
    users: int
    refused: int
    """Number of refused lines."""
    named: tuple[RefusedLine, ...]
    """The first of those."""

    def describe_refused(self) -> str:
        """The refused lines, in one line of text."""
        first = "; ".join(f"line {one.line}: {one.why}" for one in self.named)
        more = f"; and {self.refused - len(self.named)} more" if self.refused > len(self.named) else ""
        return f"{self.refused} lines are no interactions: {first}{more}" if self.refused else "every line is one"


def parse(text: bytes, clock: Clock) -> InteractionTrace:
    """Raises `ConfigError` if no interaction is left."""
    return parse_lines(BytesIO(text), clock)


def parse_lines(lines: Iterable[bytes], clock: Clock | None) -> InteractionTrace:
    """The same, line by line. If `clock` is None, the first readable time decides for all."""
    ends, times = array("q"), array("d")
    named: list[RefusedLine] = []
    refused = 0
    for number, line in enumerate(lines, start=1):
        if number == 1:
            continue
        try:
            sender, receiver, time = _fields(line.rstrip(b"\r\n"))
            clock = clock or _clock(time)
            times.append(_CLOCKS[clock](time))
            ends.extend((sender, receiver))
        except ValueError as error:
            refused += 1
            if len(named) < NAMED_MAX:
                named.append(RefusedLine(number, str(error)))
    return _trace(np.array(ends, np.int64).reshape(-1, 2), np.array(times), refused, tuple(named))


def parse_columns(
    sender: NDArray[np.int64], receiver: NDArray[np.int64], hour: NDArray[np.float64]
) -> InteractionTrace:
    """The same from columns; a missing user is negative, and a missing time is NaN."""
    wrong = (
        ("the sender is no user", sender < 0),
        ("the receiver is no user", receiver < 0),
        ("sender and receiver are one", sender == receiver),
        ("the time is none", ~np.isfinite(hour) | (hour < 0)),
    )
    bad = np.logical_or.reduce([where for _, where in wrong])
    named = tuple(
        RefusedLine(int(row) + 1, next(why for why, where in wrong if where[row]))
        for row in np.flatnonzero(bad)[:NAMED_MAX]
    )
    return _trace(np.stack([sender, receiver], axis=1)[~bad], hour[~bad], int(np.count_nonzero(bad)), named)


def _trace(
    ends: NDArray[np.int64], hour: NDArray[np.float64], refused: int, named: tuple[RefusedLine, ...]
) -> InteractionTrace:
    if not ends.size:
        first = f"; {named[0].why} in line {named[0].line}" if named else ""
        raise ConfigError(f"there is no interaction in it{first}")
    known, numbers = np.unique(ends, return_inverse=True)
    publisher, subscriber = numbers.reshape(-1, 2).T.astype(np.int32)
    hour = hour - hour.min()
    order = np.lexsort((hour, publisher))
    return InteractionTrace(publisher[order], subscriber[order], hour[order], known.size, refused, named)


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
        # Whatever the zone, differences of hours are the same, except over changes of summer time.
        return datetime.strptime(text, "%m/%d/%y %I:%M %p").replace(tzinfo=UTC).timestamp() / 3600
    except ValueError as error:
        raise ValueError("the time is none") from error


def _seconds(text: str) -> float:
    if not _SECONDS.fullmatch(text):
        raise ValueError("the time is none")
    return float(text) / 3600


def _dated(text: str) -> float:
    try:
        found = datetime.fromisoformat(text)
    except ValueError as error:
        raise ValueError("the time is none") from error
    return (found if found.tzinfo is not None else found.replace(tzinfo=UTC)).timestamp() / 3600


def _clock(text: str) -> Clock:
    for clock, read in _CLOCKS.items():
        try:
            read(text)
        except ValueError:
            continue
        return clock
    raise ValueError("the time is none")


NAMED_MAX: Final = 5
_USER: Final = re.compile(rb"\d{1,18}")
_HOURS: Final = re.compile(r"\d{1,9}(\.\d{1,18})?")
_SECONDS: Final = re.compile(r"\d{10}(\.\d{1,18})?")
_CLOCKS: Final[Mapping[Clock, Callable[[str], float]]] = {
    "hours": _hours,
    "seconds": _seconds,
    "stamps": _stamped,
    "dates": _dated,
}
