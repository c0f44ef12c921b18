"""Dates and times as people read them, in UTC."""

from __future__ import annotations

import datetime


def date_of(epoch: int, epoch_us: int) -> str:
    """When an epoch begins, for people."""
    try:
        return f"{datetime.datetime.fromtimestamp(epoch * epoch_us / 1e6, datetime.UTC):%Y-%m-%d %H:%M} UTC"
    except (OverflowError, ValueError):
        return "further notice"


def time_of(time_us: int) -> str:
    """A time of today or some days hence, for people."""
    return f"{datetime.datetime.fromtimestamp(time_us // 1_000_000, datetime.UTC):%Y-%m-%d %H:%M:%S} UTC"
