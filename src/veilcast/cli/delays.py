"""Why publications wait, and about until when, in words for their publisher."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from veilcast.machine import Delay


def spell_delay(delay: Delay, now_us: int) -> str:
    if delay.until_us is None:
        return f"{delay.reason}; how long that lasts is not known"
    return f"{delay.reason}; subscribers have it in about {spell_duration(left_us(delay, now_us))}"


def is_worth_telling(delay: Delay, now_us: int) -> bool:
    """Whether a publisher that waits for nothing longer than a few seconds would wonder."""
    return delay.until_us is None or left_us(delay, now_us) >= TOLD_US


def left_us(delay: Delay, now_us: int) -> int:
    return max(0, (delay.until_us or now_us) - now_us)


def spell_duration(us: int) -> str:
    """One number, no more exact than an estimate is: seconds up to three minutes, then minutes, then hours."""
    seconds = max(1, round(us / 1e6))
    for size, unit in ((3600, "h"), (60, "min")):
        if seconds >= 3 * size:
            return f"{round(seconds / size)} {unit}"
    return f"{seconds} s"


TOLD_US: Final = 3_000_000
