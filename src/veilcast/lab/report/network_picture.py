"""A picture of a network: nodes on a ring, links bent towards its middle, and notifications as arrows along them.

Tooltips describe nodes and links in words. Roles differ in shape as well as in colour.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import cos, pi, sin
from typing import Final, Literal, NamedTuple, TypeAlias

from veilcast.lab.report.markup import Markup, tag

Role: TypeAlias = Literal["publisher", "subscriber", "other"]


class NodeDot(NamedTuple):
    role: Role
    """The role that the shape shows."""
    tooltip: str
    is_missed: bool = False
    """Whether the node has another role than the shape shows."""


def draw_network(
    dots: Sequence[NodeDot], links: Sequence[tuple[int, int]], notes: Mapping[tuple[int, int], int], label: str
) -> Markup:
    """`notes` are counts by link and direction. Nodes are numbers, in their order on the ring."""
    most = max(notes.values(), default=1)
    places = [_place(number, len(dots)) for number in range(len(dots))]
    tip = tag(
        "marker",
        tag("path", d="M0 0L6 3L0 6z", class_="tip"),
        id="tip",
        viewBox="0 0 6 6",
        refX=6,
        refY=3,
        markerWidth=7,
        markerHeight=7,
        markerUnits="userSpaceOnUse",
        orient="auto",
    )
    return tag(
        "svg",
        tag("title", label),
        tag("defs", tip),
        *(_line(places[u], places[v]) for u, v in links),
        *(_arrow(places[u], places[v], count, most) for (u, v), count in sorted(notes.items())),
        *(_dot(number, dot, *places[number]) for number, dot in enumerate(dots)),
        viewBox=f"0 0 {_SIDE} {_SIDE}",
        class_="network",
        role="img",
        aria_label=label,
    )


def draw_key() -> Markup:
    """The key of the shapes."""
    samples = [
        tag("span", tag("svg", _shape(role, 8, 8, 6.5), viewBox="0 0 16 16", class_="network sample"), word)
        for role, word in (("publisher", "publisher"), ("subscriber", "reader"), ("other", "other member"))
    ]
    return tag("p", *samples, class_="key small")


def _line(a: tuple[float, float], b: tuple[float, float]) -> Markup:
    (x1, y1), (x2, y2), (xm, ym) = a, b, _bend(a, b)
    return tag("path", d=f"M{x1:.1f} {y1:.1f}Q{xm:.1f} {ym:.1f} {x2:.1f} {y2:.1f}", class_="link")


def _arrow(a: tuple[float, float], b: tuple[float, float], count: int, most: int) -> Markup:
    (x1, y1), (x2, y2), (xm, ym) = a, b, _bend(a, b)
    # The arrow stops short of the node, so that its tip is visible.
    length = max(1.0, ((x2 - xm) ** 2 + (y2 - ym) ** 2) ** 0.5)
    x2, y2 = x2 - (x2 - xm) * _RADIUS / length, y2 - (y2 - ym) * _RADIUS / length
    return tag(
        "path",
        tag("title", f"{count:,} notes"),
        d=f"M{x1:.1f} {y1:.1f}Q{xm:.1f} {ym:.1f} {x2:.1f} {y2:.1f}",
        class_="note",
        stroke_width=1 + 3 * count / most,
        marker_end="url(#tip)",
    )


def _dot(number: int, dot: NodeDot, x: float, y: float) -> Markup:
    shown = [tag("title", dot.tooltip), _shape(dot.role, x, y, _RADIUS)]
    if dot.is_missed:
        shown.append(tag("circle", cx=x, cy=y, r=_RADIUS + 3, class_="missed"))
    return tag("g", *shown, tag("text", str(number + 1), x=x, y=y + 3.2, class_=dot.role))


def _shape(role: str, x: float, y: float, r: float) -> Markup:
    match role:
        case "publisher":
            w = 1.3 * r
            return tag("path", d=f"M{x:.1f} {y - w:.1f}l{w} {w}l{-w} {w}l{-w} {-w}z", class_="publisher")
        case "subscriber":
            side = 1.8 * r
            return tag("rect", x=x - side / 2, y=y - side / 2, width=side, height=side, class_="subscriber")
        case _:
            return tag("circle", cx=x, cy=y, r=r, class_="other")


def _bend(a: tuple[float, float], b: tuple[float, float]) -> tuple[float, float]:
    """Bend links towards the middle, so that links along the ring do not hide one another."""
    x, y = ((1 - _BEND) * (p + q) / 2 + _BEND * _SIDE / 2 for p, q in zip(a, b, strict=True))
    return x, y


def _place(number: int, nodes: int) -> tuple[float, float]:
    angle, reach = 2 * pi * number / nodes - pi / 2, _SIDE / 2 - 2 * _RADIUS
    return _SIDE / 2 + reach * cos(angle), _SIDE / 2 + reach * sin(angle)


STYLE: Final = """
svg.network{display:block;width:100%;height:auto}svg.sample{display:inline-block;width:1em;height:1em;
vertical-align:-.12em;margin-right:.35em}.key span{margin-right:1.2em;white-space:nowrap}
.network .link,.network .note,.network .missed{fill:none}.network .link{stroke:var(--faint)}
.network .note{stroke:var(--c1);stroke-opacity:.75}.network .tip{fill:var(--c1)}
.network :is(circle,rect,path.publisher){stroke:var(--soft);stroke-width:.8}
.network circle.other{fill:var(--panel)}.network path.publisher{fill:var(--c1)}.network rect.subscriber{fill:var(--c0)}
.network circle.missed{stroke:var(--c0);stroke-width:2;stroke-dasharray:3 2}
.network text{font-size:9px;text-anchor:middle;fill:var(--ink)}
.network text:is(.publisher,.subscriber){fill:var(--paper);font-weight:700}
.pair{display:flex;flex-wrap:wrap;gap:1rem}.pair figure{flex:1 1 300px;margin:.5rem 0}
"""
NODES_MAX: Final = 96
"""A ring of more nodes is unreadable."""

_SIDE: Final = 360
_RADIUS: Final = 9.0
_BEND: Final = 0.3
