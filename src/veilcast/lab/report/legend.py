"""The legend of a figure: rows above its frame, so that it never covers data.

A label longer than a row is cut; its tooltip has the whole label.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from veilcast.lab.report.markup import Markup, tag
from veilcast.lab.report.text_width import row_height, shorten_text, text_width


@dataclass(frozen=True)
class LegendEntry:
    """A sample, drawn around the point (12, 0), and its label."""

    sample: Markup
    label: str


def lay_out_rows(entries: Sequence[LegendEntry], room: float, font: float) -> list[list[tuple[float, LegendEntry]]]:
    """Rows of entries, each entry with its place in the row."""
    laid: list[list[tuple[float, LegendEntry]]] = []
    x = room + 1
    for entry in entries:
        takes = _SAMPLE + text_width(shorten_text(entry.label, room - _SAMPLE, font), font)
        if x + takes > room:
            laid.append([])
            x = 0.0
        laid[-1].append((x, entry))
        x += takes + _GAP
    return laid


def draw_legend(
    laid: Sequence[Sequence[tuple[float, LegendEntry]]], left: float, top: float, room: float, font: float
) -> Markup:
    return tag(
        "g",
        *(
            tag(
                "g",
                tag("title", entry.label),
                entry.sample,
                tag("text", shorten_text(entry.label, room - _SAMPLE, font), x=_SAMPLE, y=font * 0.35),
                transform=f"translate({left + x:.1f} {top + (number + 0.5) * row_height(font):.1f})",
            )
            for number, row in enumerate(laid)
            for x, entry in row
        ),
        class_="legend",
    )


_SAMPLE: Final = 30.0
_GAP: Final = 16.0
