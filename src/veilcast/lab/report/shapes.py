"""Signs of verdicts: shapes that are told apart without colour."""

from __future__ import annotations

from veilcast.lab.report.markup import Markup, tag


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
