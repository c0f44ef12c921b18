from __future__ import annotations

from veilcast.errors import StaleError
from veilcast.link.admission import PREFIXES_MAX, PrefixRateLimit


def test_prefix_rate_limits_are_bounded_and_exhausted_for_one_prefix_only() -> None:
    bell = PrefixRateLimit(1_000, 3)
    for number in range(2 * PREFIXES_MAX):
        bell.charge(f"p{number}", 0)
    assert len(bell) == PREFIXES_MAX
    last = f"p{2 * PREFIXES_MAX - 1}"
    bell.exhaust(last, 0)
    bell.exhaust("nobody", 0)
    for prefix, rings in ((last, 0), ("fresh", 3)):
        assert rings_through(bell, prefix) == rings


def rings_through(bell: PrefixRateLimit, prefix: str) -> int:
    for rung in range(100):
        try:
            bell.charge(prefix, 0)
        except StaleError:
            return rung
    return 100
