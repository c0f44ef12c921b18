"""Epochs: numbered periods of one length, the same for all members of an authority."""

from __future__ import annotations

from typing import Final


def epoch_of(now: int, length_us: int) -> int:
    """The epoch that `now` (Unix microseconds) falls in."""
    return now // length_us


def epochs_in(days: float, length_us: int) -> int:
    """The number of epochs in a batch for this many days, at least one."""
    return max(1, int(days * DAY_US // length_us))


HOUR_US: Final = 3_600_000_000
DAY_US: Final = 24 * HOUR_US
BATCH_DAYS: Final = 30
BATCH_MAX: Final = 10_000
"""Epochs of one grant, at most; keys and certificates are made one by one."""
