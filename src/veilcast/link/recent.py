"""Remembering the last few: a dict in the order of remembering, with a bound."""

from __future__ import annotations

from typing import TypeVar

Name = TypeVar("Name")
What = TypeVar("What")


def remember(names: dict[Name, What], name: Name, what: What, most: int) -> None:
    """Let it be the newest of these; when there is no room, the oldest goes."""
    names.pop(name, None)
    if len(names) >= most:
        del names[next(iter(names))]
    names[name] = what
