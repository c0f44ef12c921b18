"""Formats numbers for the page: short, with a sign where it matters, and without false precision."""

from __future__ import annotations

import math


def format_number(value: float, digits: int = 3) -> str:
    """The value with `digits` significant digits; whole numbers in full, with thousands separators."""
    if not math.isfinite(value):
        return "\u2013"
    if value == 0:
        return "0"
    size = math.floor(math.log10(abs(value)))
    if size < -4 or size > 8:
        return _minus(f"{value:.{digits - 1}e}")
    decimals = max(0, digits - 1 - size)
    written = f"{value:,.{decimals}f}"
    return _minus(written.rstrip("0").rstrip(".") if "." in written else written)


def format_like(value: float, like: float) -> str:
    """The value with as many decimals as `like` needs for four digits, so that the ends of an interval are aligned."""
    if not (math.isfinite(value) and math.isfinite(like)):
        return format_number(value)
    size = math.floor(math.log10(abs(like))) if like else 0
    whole = size >= 1 and like == round(like)
    return _minus(f"{value:,.{0 if whole else min(3, max(0, 3 - size))}f}")


def format_interval(value: float, low: float, high: float) -> str:
    """The interval of a value, in brackets; empty without an interval, as with one seed."""
    if not (math.isfinite(low) and math.isfinite(high) and low < high):
        return ""
    return f"[{format_like(low, value)}, {format_like(high, value)}]"


def format_signed(value: float, like: float) -> str:
    if not math.isfinite(value):
        return "\u2013"
    written = format_like(abs(value), like)
    if not any(digit in "123456789" for digit in written):
        return written
    return ("\u2212" if value < 0 else "+") + written


def format_duration(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s"


def _minus(written: str) -> str:
    return written.replace("-", "\u2212")
