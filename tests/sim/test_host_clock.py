"""A wrong clock never goes back, and its timers fire at the first instant at which it shows the deadline."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from veilcast.errors import ConfigError
from veilcast.sim.host import HostClock

START = 1_767_225_600_000_000
OFFSETS = st.integers(-(10**9), 10**9)
DRIFTS = st.integers(-900_000, 900_000)
SPANS = st.integers(0, 10**9)


@given(OFFSETS, DRIFTS, SPANS, SPANS)
def test_a_clock_never_goes_back(offset: int, drift: int, a: int, b: int) -> None:
    clock = HostClock(START, offset, drift, floor_us=START)
    low, high = sorted((a, b))
    assert START <= clock.read(START + low) <= clock.read(START + high)


@given(OFFSETS, DRIFTS, SPANS)
def test_when_is_the_first_instant_at_which_the_deadline_shows(offset: int, drift: int, ahead: int) -> None:
    clock = HostClock(START, offset, drift, floor_us=START)
    deadline = clock.read(START) + 1 + ahead
    when = clock.when(deadline)
    assert clock.read(when) >= deadline
    assert clock.read(when - 1) < deadline


def test_a_deadline_already_shown_is_due_at_once() -> None:
    clock = HostClock(START, -1_000, 0, floor_us=START)
    assert clock.when(START) == START


def test_a_clock_that_stands_still_is_refused() -> None:
    with pytest.raises(ConfigError, match="drift_ppm"):
        HostClock(START, 0, -1_000_000, START)
