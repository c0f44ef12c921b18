"""The numbers that an experiment states beforehand: published, of an earlier run, or checks of its own.

`lab.measure.verdicts` says how they are judged. This module imports no numerics: `lab list` reads definitions.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import ClassVar, Final, Literal, TypeAlias, get_args

import msgspec

from veilcast.errors import LocalError

VerdictWord: TypeAlias = Literal["fits", "near", "partly", "not reproduced"]


class StatedNumber(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A number, and the curve of ours that it is held against."""

    kind: ClassVar[str]
    what: str
    value: float
    figure: str
    curve: str
    """The label of the curve."""
    within: float = 0.0
    """The largest distance at which our number is near; half of the widest interval that fits. A bound has none."""
    x: float | None = None
    """The place on the curve; None if the number is about the whole curve."""
    statistic: Literal["value", "change", "ratio", "gap", "slope", "argmin", "settles", "last"] = "value"
    """The number that is taken from our curve: its value at x; its change since `since`, or how many times the value at
    `since` it is; its distance from the curve `beside`; the slope of its least-squares line; the x where it is
    smallest; the x from which it stays within `margin` of `beside`; its last value."""
    since: float | None = None
    compare: Literal["equal", "at most", "at least", "not told from"] = "equal"
    """"equal": the number is a value. "at most", "at least": it is the bound of a claim, such as that a curve falls.
    "not told from": it is the value of chance, and our interval must contain it."""
    among: int = 1
    """Number of comparisons of which any one would be a finding. The interval is widened so that it holds for all of
    them."""
    beside: str = ""
    margin: float = 0.0
    expect: VerdictWord = "fits"
    why: str = ""
    """The reason for an expected miss."""
    machines: VerdictWord | Literal[""] = ""
    """The verdict that is expected of the machines, if it is not that of the models."""
    machines_why: str = ""
    """The reason for an expected miss of the machines."""

    def expected_of(self, engine: str) -> tuple[VerdictWord, str]:
        """The expected verdict of an engine, and the reason for a miss."""
        if engine == "machines" and self.machines:
            return self.machines, self.machines_why
        return self.expect, self.why

    @property
    def origin(self) -> str:
        """Where the number is from."""
        raise LocalError("a stated number is published, earlier or a check")

    @property
    def precision(self) -> float:
        """Largest distance of the stated value from the value that is meant."""
        return 0.0


class PublishedNumber(StatedNumber, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A number that a paper prints, or a comparison that it makes in words."""

    kind = "published"
    place: str
    """The place in the paper, such as "P0 5, Fig. 12"."""
    words: str = ""
    """The paper's own words, where it states the number in words; required for a bound."""
    rounding: float = 0.0
    """Half a unit of the last digit that the paper prints."""

    @property
    def origin(self) -> str:
        return f'{self.place}: "{self.words}"' if self.words else self.place

    @property
    def precision(self) -> float:
        return self.rounding


class EarlierNumber(StatedNumber, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A number of an earlier run, of ours or of a prototype."""

    kind = "earlier"
    run: str
    """What was run."""

    @property
    def origin(self) -> str:
        return self.run


class OwnCheck(StatedNumber, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A number of our own: a formula, a control, or an aim."""

    kind = "check"
    because: str = ""
    """Why this number."""

    @property
    def origin(self) -> str:
        return self.because


def find_number_problems(number: StatedNumber) -> Iterator[str]:
    """What is wrong with the fields of a stated number."""
    for name, meant in _NEEDED.items():
        if (getattr(number, name) in (None, "")) == (number.statistic in meant):
            yield f"{name} is for {' or '.join(meant)}, and needed there"
    if number.among < 1:
        yield "among is at least 1, itself"
    bound = number.compare in BOUNDS
    if bound and number.within:
        yield "a bound has no margin: state the bound itself, without `within`"
    if isinstance(number, PublishedNumber):
        if not _PLACE.match(number.place):
            yield f"place {number.place!r} names no paper, as in P0 5, Fig. 12"
        if bound and not number.words:
            yield "words: a bound that a paper states is quoted"


VERDICTS: Final = get_args(VerdictWord)
BOUNDS: Final = ("at most", "at least")
_NEEDED: Final = {"x": ("value", "change", "ratio", "gap"), "since": ("change", "ratio"), "beside": ("gap", "settles")}
"""The statistics that need a field. All other statistics forbid it."""
_PLACE: Final = re.compile(r"P[0-4]\b")
