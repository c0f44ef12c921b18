from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from veilcast.net.clock import SystemClock


def test_setting_the_system_clock_back_does_not_move_time() -> None:
    wall, steady = [1_700_000_000_000_000_000], [5_000]
    clock = SystemClock(lambda: wall[0], lambda: steady[0])
    before = clock.now()
    wall[0] -= 3_600_000_000_000
    steady[0] += 7_000
    assert clock.now() == before + 7


@given(st.lists(st.integers(0, 10**12), min_size=1))
def test_time_never_goes_back(steps: list[int]) -> None:
    steady = [12_345]
    clock = SystemClock(lambda: 1_700_000_000_000_000_999, lambda: steady[0])
    last = clock.now()
    for step in steps:
        steady[0] += step
        assert clock.now() >= last
        last = clock.now()


@given(st.integers(0, 10**15), st.integers(0, 10**9))
def test_when_the_loop_reaches_a_deadline_so_has_the_clock(uptime_ns: int, wait_us: int) -> None:
    steady = [uptime_ns]
    clock = SystemClock(lambda: 1_700_000_000_000_000_000, lambda: steady[0])
    due = clock.now() + wait_us
    # The steady clock's nanosecond next to what the loop was told: floats may err by less than a microsecond.
    steady[0] = round(clock.loop_time(due) * 1e9)
    assert abs(clock.now() - due) <= 1
