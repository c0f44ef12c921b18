"""The legend of a figure: rows above its frame, so that it never covers data.

A label longer than a whole row is cut; all of it is in its tooltip.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from veilcast.lab.report.lettering import cut, row_height, width
from veilcast.lab.report.markup import Markup, tag


@dataclass(frozen=True)
class Entry:
    """A sample, drawn around the point (12, 0), and what it stands for."""

    sample: Markup
    label: str


def rows(entries: Sequence[Entry], room: float, font: float) -> list[list[tuple[float, Entry]]]:
    """Each entry with where in its row it begins."""
    laid: list[list[tuple[float, Entry]]] = []
    x = room + 1
    for entry in entries:
        takes = _SAMPLE + width(cut(entry.label, room - _SAMPLE, font), font)
        if x + takes > room:
            laid.append([])
            x = 0.0
        laid[-1].append((x, entry))
        x += takes + _GAP
    return laid


def draw(laid: Sequence[Sequence[tuple[float, Entry]]], left: float, top: float, room: float, font: float) -> Markup:
    return tag(
        "g",
        *(
            tag(
                "g",
                tag("title", entry.label),
                entry.sample,
                tag("text", cut(entry.label, room - _SAMPLE, font), x=_SAMPLE, y=font * 0.35),
                transform=f"translate({left + x:.1f} {top + (number + 0.5) * row_height(font):.1f})",
            )
            for number, row in enumerate(laid)
            for x, entry in row
        ),
        class_="legend",
    )


_SAMPLE: Final = 30.0
_GAP: Final = 16.0
