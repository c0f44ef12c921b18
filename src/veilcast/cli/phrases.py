"""Numbers, times and delays as people read them; dates are in UTC."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from veilcast.machine import Delay
import datetime


def pluralize(number: int, what: str) -> str:
    """`1 process`, `2 processes`; `what` is the singular."""
    many = "es" if what.endswith("s") else "s"
    return f"{number:,} {what}{'' if number == 1 else many}"


def format_delay(delay: Delay, now_us: int) -> str:
    if delay.until_us is None:
        return f"{delay.reason}; how long that lasts is not known"
    return f"{delay.reason}; subscribers have it in about {format_duration(remaining_us(delay, now_us))}"


def is_worth_telling(delay: Delay, now_us: int) -> bool:
    """Return True if a publisher that expects a few seconds would wonder about this delay."""
    return delay.until_us is None or remaining_us(delay, now_us) >= TOLD_US


def remaining_us(delay: Delay, now_us: int) -> int:
    return max(0, (delay.until_us or now_us) - now_us)


def format_duration(us: int) -> str:
    """Return one number, no more exact than an estimate is: seconds up to three minutes, then minutes, then hours."""
    seconds = max(1, round(us / 1e6))
    for size, unit in ((3600, "h"), (60, "min")):
        if seconds >= 3 * size:
            return f"{round(seconds / size)} {unit}"
    return f"{seconds} s"


TOLD_US: Final = 3_000_000


def format_epoch(epoch: int, epoch_us: int) -> str:
    """Return the date at which an epoch begins."""
    try:
        return f"{datetime.datetime.fromtimestamp(epoch * epoch_us / 1e6, datetime.UTC):%Y-%m-%d %H:%M} UTC"
    except (OverflowError, ValueError):
        return "further notice"


def format_time(time_us: int) -> str:
    """Return a date and time with seconds."""
    return f"{datetime.datetime.fromtimestamp(time_us // 1_000_000, datetime.UTC):%Y-%m-%d %H:%M:%S} UTC"
