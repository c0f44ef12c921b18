"""A burst, then a steady rate."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from veilcast.core.rate_limit import TokenBucket


@given(st.integers(1, 50), st.integers(1, 20), st.lists(st.integers(0, 100), max_size=60))
def test_no_interval_lets_through_more_than_the_burst_and_its_share(every: int, burst: int, gaps: list[int]) -> None:
    bucket, now, taken = TokenBucket(every, burst), 0, list[int]()
    for gap in gaps:
        now += gap
        if bucket.take(now):
            taken.append(now)
    for first, start in enumerate(taken):
        for last in range(first, len(taken)):
            assert last - first + 1 <= burst + (taken[last] - start) // every


@given(st.integers(1, 50), st.integers(1, 20), st.lists(st.integers(0, 30), max_size=60))
def test_a_sender_within_the_rate_is_never_refused(every: int, burst: int, extra: list[int]) -> None:
    bucket, now = TokenBucket(every, burst), 0
    assert all(bucket.take(now) for _ in range(burst))
    for more in extra:
        now += every + more
        assert bucket.take(now)
