"""So many of something, in words: one is not said as many are."""

from __future__ import annotations


def counted(number: int, what: str) -> str:
    """`1 process`, `2 processes`; `what` is one of them."""
    many = "es" if what.endswith("s") else "s"
    return f"{number:,} {what}{'' if number == 1 else many}"
