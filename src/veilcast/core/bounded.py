"""Remembering the last few: a dict in the order of remembering, with a bound."""

from __future__ import annotations

from typing import TypeVar

Key = TypeVar("Key")
Value = TypeVar("Value")


def remember(names: dict[Key, Value], name: Key, what: Value, most: int) -> None:
    """Let it be the newest of these; when there is no room, the oldest goes."""
    names.pop(name, None)
    if len(names) >= most:
        del names[next(iter(names))]
    names[name] = what
