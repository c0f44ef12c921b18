"""Estimates the width of text. The reader's font is unknown, so the estimate is generous for common fonts, and longer
text is cut."""

from __future__ import annotations

from typing import Final


def text_width(text: str, font: float) -> float:
    return len(text) * font * _LETTER


def row_height(font: float) -> float:
    return 1.6 * font


def shorten_text(text: str, room: float, font: float) -> str:
    most = max(1, int(room / (font * _LETTER)))
    return text if len(text) <= most else text[: most - 1] + "\u2026"


_LETTER: Final = 0.57
