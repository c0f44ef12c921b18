"""Topics and filters of MQTT: levels with `/` between them, and in a filter `+` for any one level, `#` for any rest.

A filter that ends in `/#` also takes the level before it. Neither `+` nor `#` at the beginning takes a topic that
begins with `$`: those are a broker's own. Both are texts of 1 to 65,535 bytes of UTF-8 without U+0000.
"""

from __future__ import annotations

from typing import Final


def check_text(text: str) -> bytes:
    """The bytes of a text. Raises `ValueError` if MQTT has no such text."""
    data = text.encode()
    if len(data) > TEXT_MAX or "\0" in text:
        raise ValueError("a text that is too long or holds U+0000")
    return data


def check_topic(topic: str) -> bytes:
    if not topic or "+" in topic or "#" in topic:
        raise ValueError("a topic that is empty or holds a wildcard")
    return check_text(topic)


def check_filter(pattern: str) -> bytes:
    if not pattern:
        raise ValueError("an empty filter")
    if "+" in pattern or "#" in pattern:
        *inner, last = pattern.split("/")
        if any("#" in level for level in inner) or any(
            len(level) > 1 and ("+" in level or "#" in level) for level in (*inner, last)
        ):
            raise ValueError("a filter with a wildcard in the wrong place")
    return check_text(pattern)


def filter_matches(pattern: str, topic: str) -> bool:
    """True if a broker sends a publication on a legal topic to a client with this legal filter."""
    wanted, levels = pattern.split("/"), topic.split("/")
    if topic.startswith("$") and wanted[0] in ("+", "#"):
        return False
    if wanted[-1] == "#":
        wanted.pop()
        levels = levels[: len(wanted)]
    return len(wanted) == len(levels) and all(want in ("+", level) for want, level in zip(wanted, levels, strict=True))


TEXT_MAX: Final = 0xFFFF
