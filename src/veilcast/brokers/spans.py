"""Spans: the times that claims are made for, one after the other.

Pure. In `hardened` a span is an epoch, whose keys its claims are made with. In `paper` a topic has one key for ever,
and a span is half a lease. A claim outlasts its span by another one: so whoever renews in time stands at every moment
by two of them, and clocks that differ do no harm.
"""

from __future__ import annotations

from typing import NamedTuple

from veilcast.authority.epoch import epoch_of
from veilcast.authority.record import Profile


class Span(NamedTuple):
    """From `from_us` to `turn_us`; its claims last until `until_us`. `epoch` is that of the keys."""

    number: int
    epoch: int
    from_us: int
    turn_us: int
    until_us: int


class Spans:
    """As they follow one another in this profile."""

    def __init__(self, profile: Profile, epoch_us: int, lease_us: int) -> None:
        self._epoch_us = epoch_us
        self._length_us = epoch_us if profile == "hardened" else max(1, lease_us // 2)

    def at(self, now: int) -> Span:
        return self._span(now // self._length_us)

    def after(self, span: Span) -> Span:
        return self._span(span.number + 1)

    def _span(self, number: int) -> Span:
        start, length = number * self._length_us, self._length_us
        turn = start + length
        return Span(number, epoch_of(turn - 1, self._epoch_us), start, turn, turn + length)
