"""Shapes that distinguish lines without colour: a marker and a dash for each, and signs for verdicts.

Each shape is a path around the origin, about as large as its radius.
"""

from __future__ import annotations

from math import cos, pi, sin
from typing import Final

from veilcast.lab.report.markup import Markup, join, tag


def draw_marker(number: int, x: float, y: float, radius: float = 3.6) -> Markup:
    """The marker of the line with this number."""
    return tag("path", d=_MARKERS[number % len(_MARKERS)](x, y, radius), class_="marker")


def dash_pattern(number: int) -> str | None:
    return _DASHES[number % len(_DASHES)]


def draw_stated(kind: str, x: float, y: float, radius: float = 7.0) -> Markup:
    """A published value is a diamond, an earlier one a ring: larger than any marker, and open, so that our value is
    visible inside."""
    shape = _polygon(x, y, radius, 4, 0.0) if kind == "published" else _round(x, y, radius - 1)
    return join(tag("path", d=shape, class_="halo"), tag("path", d=shape, class_=kind))


def draw_sign(verdict: str) -> Markup:
    """A verdict as a shape: full, full in the middle, half, crossed out, or an empty ring for none."""
    ring = tag("circle", cx=8, cy=8, r=6, class_="ring")
    inside = {
        "fits": tag("circle", cx=8, cy=8, r=6.9, class_="full"),
        "near": tag("circle", cx=8, cy=8, r=3.4, class_="full"),
        "partly": tag("path", d="M8 2a6 6 0 0 0 0 12z", class_="full"),
        "not reproduced": tag("path", d="M4.6 4.6L11.4 11.4M11.4 4.6L4.6 11.4", class_="cross"),
    }.get(verdict, Markup())
    return tag("svg", ring, inside, viewBox="0 0 16 16", class_=f"sign {verdict.replace(' ', '-')}", aria_hidden="true")


def _round(x: float, y: float, radius: float) -> str:
    return f"M{x - radius:.2f} {y:.2f}a{radius} {radius} 0 1 0 {2 * radius} 0a{radius} {radius} 0 1 0 {-2 * radius} 0z"


def _polygon(x: float, y: float, radius: float, corners: int, turn: float, inner: float | None = None) -> str:
    """A regular polygon, its first corner `turn` after the top; with an inner radius, a star."""
    radii = [radius] if inner is None else [radius, inner]
    count = corners * len(radii)
    at = [(radii[k % len(radii)], 2 * pi * k / count + turn) for k in range(count)]
    return "M" + "L".join(f"{x + r * sin(a):.2f} {y - r * cos(a):.2f}" for r, a in at) + "z"


_MARKERS: Final = (
    _round,
    lambda x, y, r: _polygon(x, y, 1.25 * r, 4, pi / 4),
    lambda x, y, r: _polygon(x, y, 1.3 * r, 3, 0.0),
    lambda x, y, r: _polygon(x, y, 1.3 * r, 3, pi),
    lambda x, y, r: _polygon(x, y, 1.5 * r, 5, 0.0, 0.65 * r),
    lambda x, y, r: _polygon(x, y, 1.4 * r, 4, 0.0, 0.55 * r),
    lambda x, y, r: _polygon(x, y, 1.2 * r, 6, 0.0),
    lambda x, y, r: _polygon(x, y, 1.4 * r, 4, pi / 4, 0.55 * r),
    lambda x, y, r: _polygon(x, y, 1.3 * r, 3, pi / 2),
    lambda x, y, r: _polygon(x, y, 1.3 * r, 3, -pi / 2),
)
_DASHES: Final = (None, "8 3", "2.5 2.5", "9 3 2 3", "5 3", "12 3 2 3 2 3", "1.5 3", "14 4", "6 2 1.5 2", "3 5")
