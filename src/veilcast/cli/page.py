"""The demo's page: one HTML file without scripts or anything from elsewhere, and pictures drawn as SVG in it."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from math import cos, pi, sin
from typing import Any, Final

from veilcast.cli.localnet import Net
from veilcast.cli.observer import Sight


def page(networks: Sequence[tuple[dict[str, Any], Net, Sight]]) -> str:
    """What the demo found, with two pictures of each network: as its members know it, and as its observer sees it."""
    sections = "".join(_section(data, net, sight) for data, net, sight in networks)
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>Veilcast: what an observer sees</title><style>{_STYLE}</style></head><body>
<h1>What an observer sees</h1>
<p>Three networks of real nodes on one machine, drawn from what happened in one run. On the left what their members
know, on the right what somebody knows who records the time, addresses and size of every datagram on every wire.</p>
<p class="key"><span class="dot publisher"></span>publisher <span class="dot subscriber"></span>reader
<span class="dot forwarder"></span>other member &nbsp;|&nbsp; on the right: who is <em>named</em> as such; a dashed ring
is a reader that is not.</p>
{sections}</body></html>
"""


def _section(data: dict[str, Any], net: Net, sight: Sight) -> str:
    latency = data["latency_median_s"]
    facts = [
        f"{data['delivered']} of {data['expected']} notes delivered"
        + ("" if latency is None else f", half of them within {latency * 1000:.0f} ms"),
        f"{data['datagrams']:,} datagrams of {data['sizes']} sizes on the wire",
        f"{data['publications_seen']} publications seen",
        f"readers named: {data['readers_named']}, of them rightly {data['readers_named_rightly']}",
    ]
    listed = "".join(f"<li>{escape(fact)}</li>" for fact in facts)
    return (
        f"<section><h2>{escape(data['profile'])}</h2><ul>{listed}</ul><div class='pair'>"
        f"<figure>{_members(net)}<figcaption>as its members know it</figcaption></figure>"
        f"<figure>{_observer(net, sight)}<figcaption>as the observer sees it</figcaption></figure></div></section>"
    )


def _members(net: Net) -> str:
    lines = [_line(net, u, v, "link", 1.0, "") for u, v in net.links]
    dots = [_dot(net, number, role, f"{address}: {role}") for number, (address, role) in enumerate(_who(net))]
    return _svg(lines + dots)


def _observer(net: Net, sight: Sight) -> str:
    """Every link that carried something; thick where notes stood out, by how many."""
    place = {address: number for number, address in enumerate(net.addresses)}
    most = max(sight.notes.values(), default=1)
    lines = []
    for (source, target), count in sorted(sight.links.items()):
        if source < target and source in place and target in place:
            total = count + sight.links[target, source]
            lines.append(_line(net, place[source], place[target], "link", 1.0, f"{total} datagrams"))
    for (source, target), count in sorted(sight.notes.items()):
        if source in place and target in place:
            width = 1.0 + 4.0 * count / most
            lines.append(_line(net, place[source], place[target], "note", width, f"{count} notes", arrow=True))
    dots = []
    for number, (address, role) in enumerate(_who(net)):
        seen = "publisher" if address == sight.publisher else "subscriber" if address in sight.readers else "forwarder"
        missed = " missed" if role == "subscriber" and seen != role else ""
        dots.append(_dot(net, number, seen + missed, f"{address}: seen as {seen}, is {role}"))
    return _svg(lines + dots)


def _who(net: Net) -> list[tuple[str, str]]:
    return [(address, role) for address, role in zip(net.addresses, net.roles, strict=True)]


def _svg(parts: list[str]) -> str:
    marker = (
        '<defs><marker id="tip" viewBox="0 0 6 6" refX="6" refY="3" markerWidth="7" markerHeight="7"'
        ' markerUnits="userSpaceOnUse" orient="auto"><path d="M0 0L6 3L0 6z" class="tip"/></marker></defs>'
    )
    return f'<svg viewBox="0 0 {_SIDE} {_SIDE}" role="img">{marker}{"".join(parts)}</svg>'


def _line(net: Net, u: int, v: int, kind: str, width: float, title: str, *, arrow: bool = False) -> str:
    """Bent towards the middle, so that links along the ring do not hide one another."""
    (x1, y1), (x2, y2) = _place(net, u), _place(net, v)
    xm, ym = ((1 - _BEND) * (a + b) / 2 + _BEND * _SIDE / 2 for a, b in ((x1, x2), (y1, y2)))
    end = ""
    if arrow:
        # Stops short of the node, so that the tip shows.
        length = max(1.0, ((x2 - xm) ** 2 + (y2 - ym) ** 2) ** 0.5)
        x2, y2 = x2 - (x2 - xm) * _RADIUS / length, y2 - (y2 - ym) * _RADIUS / length
        end = ' marker-end="url(#tip)"'
    curve = f"M{x1:.1f} {y1:.1f}Q{xm:.1f} {ym:.1f} {x2:.1f} {y2:.1f}"
    return f'<path d="{curve}" class="{kind}" stroke-width="{width:.1f}"{end}><title>{escape(title)}</title></path>'


def _dot(net: Net, number: int, kind: str, title: str) -> str:
    x, y = _place(net, number)
    return (
        f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{_RADIUS}" class="{kind}"><title>{escape(title)}</title></circle>'
        f'<text x="{x:.1f}" y="{y + 3.5:.1f}">{number + 1}</text>'
    )


def _place(net: Net, number: int) -> tuple[float, float]:
    angle = 2 * pi * number / net.plan.nodes - pi / 2
    reach = _SIDE / 2 - 2 * _RADIUS
    return _SIDE / 2 + reach * cos(angle), _SIDE / 2 + reach * sin(angle)


_SIDE: Final = 360
_RADIUS: Final = 10
_BEND: Final = 0.3
_STYLE: Final = """
:root{color-scheme:light dark;--ink:#222;--paper:#fff;--link:#bbb;--note:#c2410c;--publisher:#c2410c;
--subscriber:#1d6fb8;--forwarder:#e4e4e4}
@media(prefers-color-scheme:dark){:root{--ink:#ddd;--paper:#161616;--link:#555;--forwarder:#3a3a3a}}
body{font:16px/1.5 system-ui,sans-serif;color:var(--ink);background:var(--paper);max-width:860px;margin:2rem auto;
padding:0 1rem}
.pair{display:flex;flex-wrap:wrap;gap:1rem}figure{flex:1 1 320px;margin:0}figcaption{text-align:center}
svg{width:100%;height:auto}.link,.note{fill:none}.link{stroke:var(--link)}
.note{stroke:var(--note);stroke-opacity:.7}.tip{fill:var(--note)}
circle{stroke:var(--ink);stroke-width:.8}circle.publisher{fill:var(--publisher)}
circle.subscriber{fill:var(--subscriber)}circle.forwarder{fill:var(--forwarder)}
circle.missed{stroke:var(--subscriber);stroke-width:2.5;stroke-dasharray:3 2}
text{font-size:9px;text-anchor:middle;fill:var(--ink)}
.dot{display:inline-block;width:.8em;height:.8em;border-radius:50%;border:1px solid var(--ink);margin:0 .3em 0 .8em}
.dot.publisher{background:var(--publisher)}.dot.subscriber{background:var(--subscriber)}
.dot.forwarder{background:var(--forwarder)}
"""
