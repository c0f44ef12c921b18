"""The page of an audit: what an observer learned, with which confidence, and what to change; one HTML file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import msgspec

from veilcast.lab.audit.attacker_reports import AttackerReport, SuspectReport
from veilcast.lab.audit.audit import Audit, CaptureAudit
from veilcast.lab.audit.limits import Limit
from veilcast.lab.report import network_picture, output_files
from veilcast.lab.report.html_document import html_document
from veilcast.lab.report.markup import Markup, join, tag
from veilcast.lab.report.network_picture import NodeDot, Role
from veilcast.lab.report.number_format import format_number


def write_pages(directory: Path, found: CaptureAudit, limits: Sequence[Limit] = ()) -> list[Path]:
    """Write a page and its data for each network below a directory. Returns the paths of the pages, the worst first."""
    pages = []
    for number, each in enumerate(found.networks, 1):
        suffix = "" if number == 1 else f"-{number}"
        pages.append(directory / PAGE.replace(".", f"{suffix}."))
        output_files.write_page(
            pages[-1], render_page(each, limits, [*found.remarks, *found.left_out.lines()], found.left_out.doubts)
        )
        data = msgspec.json.format(msgspec.json.encode(each)).decode()
        output_files.write_page(directory / DATA.replace(".", f"{suffix}."), data)
    return pages


def render_page(
    found: Audit, limits: Sequence[Limit] = (), remarks: Sequence[str] = (), doubts: Sequence[str] = ()
) -> str:
    """The page of one network; `remarks` and `doubts` are about the whole capture."""
    read = [*found.reading.lines(), *remarks, *found.remarks]
    return html_document(
        "Veilcast audit",
        tag("p", _lead(found), class_="lead"),
        tag("ul", *_tiles(found), class_="tally"),
        tag("p", _NO_MEMBERS, class_="notice") if not found.with_members else "",
        *(tag("p", f"In doubt: {doubt}.", class_="notice") for doubt in doubts),
        _limits(found, limits),
        _advice(found),
        _picture(found),
        *(_role(found, role) for role in ("publisher", "subscriber")),
        tag("h2", "All attackers", class_="minor"),
        _attackers(found.attackers),
        tag("h2", "What the wires carry", class_="minor"),
        _sizes(found),
        _odd(found),
        tag("h2", "How it was read", class_="minor"),
        tag("ul", *(tag("li", line.strip()) for line in read), class_="small"),
        styles=network_picture.STYLE + _STYLE,
    )


def _lead(found: Audit) -> str:
    wire = found.wire
    seconds = (wire.last_us - wire.first_us) / 1e6
    seen = f"{found.publications:,} publications stand out" if found.publications else "no publication stands out"
    return f"{wire.cells:,} cells between {wire.nodes:,} nodes in {format_number(seconds)} s: {seen}."


def _tiles(found: Audit) -> Iterator[Markup]:
    for role, words in (("publisher", "named as publishers"), ("subscriber", "named as readers")):
        best = found.best(role)
        count = best.named if best else 0
        right = sum(bool(suspect.right) for suspect in best.suspects[:count]) if best else 0
        said = f"{words}, {right} rightly" if found.with_members and count else words
        yield tag("li", tag("b", str(count), class_="not-reproduced" if count else "fits"), said)
    best = found.best("subscriber")
    if found.with_members:
        auc = best.measures.get("auc", 0.5) if best else 0.5
        yield tag("li", tag("b", f"{auc:.2f}"), "AUC of the best attacker on readers; 0.5 is guessing")
    else:
        yield tag("li", tag("b", str(len(found.wire.telling))), "sizes that some links have and others have not")


def _limits(found: Audit, limits: Sequence[Limit]) -> Markup:
    if not limits:
        return Markup()
    values = found.found()
    items = [
        tag(
            "li",
            tag(
                "span",
                f"{limit}: {'failed' if limit.is_crossed(values) else 'passed'}, {format_number(values[limit.name])}",
            ),
            class_="not-reproduced" if limit.is_crossed(values) else "fits",
        )
        for limit in limits
        if limit.name in values
    ]
    return join(tag("h2", "Checks", class_="minor"), tag("ul", *items, class_="findings"))


def _advice(found: Audit) -> Markup:
    if not found.advice:
        return tag("p", "Nothing was found that would have to be changed.", class_="claim")
    items = [
        tag("li", tag("b", f"{_capital(each.found)}."), tag("div", f"{_capital(each.change)}."))
        for each in found.advice
    ]
    return join(tag("h2", "What to change", class_="minor"), tag("ul", *items, class_="findings partly"))


def _picture(found: Audit) -> Markup:
    """The network as the observer sees it, with the nodes that the best attackers name."""
    nodes = sorted({end for link in found.links for end in link}, key=_natural)
    if not 2 <= len(nodes) <= network_picture.NODES_MAX:
        return Markup()
    place = {node: number for number, node in enumerate(nodes)}
    named: dict[str, Role] = {}
    roles: tuple[Role, ...] = ("subscriber", "publisher")
    for role in roles:
        if best := found.best(role):
            named |= {suspect.node: role for suspect in best.suspects[: best.named]}
    dots = [NodeDot(named.get(node, "other"), f"{node}: {_ROLE_WORDS[named.get(node, 'other')]}") for node in nodes]
    links = sorted({(min(place[u], place[v]), max(place[u], place[v])) for u, v in found.links})
    notes = {(place[flow.src], place[flow.dst]): flow.notes for flow in found.flows}
    label = "The network as the observer sees it"
    return tag(
        "figure",
        tag("figcaption", label),
        network_picture.draw_key(),
        tag("div", network_picture.draw_network(dots, links, notes, label), class_="ring"),
        tag(
            "p",
            "Arrows are notes that stood out, thicker where there were more; shapes are who is named.",
            class_="small",
        ),
    )


def _role(found: Audit, role: str) -> Markup:
    best = found.best(role)
    title = tag("h2", f"Who looks like a {_WORDS[role]}", class_="minor")
    if best is None:
        return join(title, tag("p", "No attacker says who it is."))
    shown = [suspect for suspect in best.suspects[: max(_SHOWN, best.named)] if suspect.score > 0]
    names = ["Node", "Score", "Confidence", "As suspect or more", *(["Rightly"] if found.with_members else [])]
    head = tag("tr", *(tag("th", name, scope="col", class_="number" if name != "Node" else None) for name in names))
    return join(
        title,
        tag("p", "By ", tag("b", best.attack), ", the best attacker on this role.", class_="small"),
        _scrolling(tag("table", tag("thead", head), tag("tbody", *map(_suspect, shown))), f"suspected {role}s"),
    )


def _suspect(suspect: SuspectReport) -> Markup:
    right = {True: "yes", False: "no"}
    numbers = [format_number(suspect.score), f"{suspect.confidence:.2f}", str(suspect.among)]
    if suspect.right is not None:
        numbers.append(right[suspect.right])
    return tag("tr", tag("th", suspect.node, scope="row"), *(tag("td", each, class_="number") for each in numbers))


def _attackers(attackers: Sequence[AttackerReport]) -> Markup:
    names = ("Attacker", "Looks for", "Names", "AUC", "Found at 1 %", "Base rate", "Smallest set")
    head = tag(
        "tr",
        *(tag("th", name, scope="col", class_="number" if place > 1 else None) for place, name in enumerate(names)),
    )
    rows = [tag("tr", *_attacker(each), class_=None if each.says else "silent") for each in attackers]
    return join(
        _scrolling(tag("table", tag("thead", head), tag("tbody", *rows)), "all attackers"),
        tag("p", _ABOUT, class_="small"),
    )


def _attacker(each: AttackerReport) -> Iterator[Markup]:
    told = each.measures
    yield tag("th", each.attack, scope="row")
    yield tag("td", _WORDS[each.role])
    yield tag("td", str(each.named) if each.says else "says nothing", class_="number")
    auc = tag("span", f"[{told['auc_low']:.2f}, {told['auc_high']:.2f}]", class_="small") if told else ""
    yield tag("td", f"{told['auc']:.2f}" if told else "\u2013", auc, class_="number")
    for name in ("tpr_1", "base_rate"):
        yield tag("td", f"{told[name]:.0%}" if name in told else "\u2013", class_="number")
    yield tag("td", format_number(told["set_min"]) if told else "\u2013", class_="number")


def _sizes(found: Audit) -> Markup:
    wire = found.wire
    head = tag("tr", *(tag("th", name, scope="col", class_="number") for name in ("Bytes", "Cells", "On links", "")))
    rows = [
        tag(
            "tr",
            *(tag("td", text, class_="number") for text in (f"{each.size:,}", f"{each.cells:,}", f"{each.links:,}")),
            tag("td", "tells them from the others" if each in wire.telling else ""),
        )
        for each in wire.sizes[:_SIZES]
    ]
    more = f" The {_SIZES} most frequent of {len(wire.sizes):,} sizes." if len(wire.sizes) > _SIZES else ""
    heartbeat = format_number(wire.heartbeat_us / 1000, 4)
    said = f"{wire.links:,} links, each way by itself. A heartbeat is {heartbeat} ms.{more}"
    return join(tag("table", tag("thead", head), tag("tbody", *rows)), tag("p", said, class_="small"))


def _odd(found: Audit) -> Markup:
    odd = found.wire.odd
    if not odd:
        return tag("p", "No link keeps another rhythm than the others.")
    head = tag("tr", *(tag("th", name, scope="col") for name in ("From", "To", "Cells", "Apart")))
    rows = [
        tag("tr", *(tag("td", text) for text in (each.src, each.dst, f"{each.cells:,}", format_number(each.apart))))
        for each in odd[:_SIZES]
    ]
    said = f"{len(odd):,} links keep another rhythm than the others: 0 would be the same, 1 nothing in common."
    return join(tag("p", said), _scrolling(tag("table", tag("thead", head), tag("tbody", *rows)), "odd links"))


def _scrolling(table: Markup, label: str) -> Markup:
    return tag("div", table, class_="scroll", tabindex="0", role="region", aria_label=label)


def _capital(sentence: str) -> str:
    return sentence[:1].upper() + sentence[1:]


def _natural(node: str) -> tuple[object, ...]:
    """Sort key: 127.9.0.1:4000 before 127.10.0.1:4000."""
    return tuple((0, int(part)) if part.isdigit() else (1, part) for part in node.replace(":", ".").split("."))


PAGE: Final = "audit.html"
DATA: Final = "audit.json"

_SHOWN: Final = 5
_SIZES: Final = 12
_WORDS: Final = {"publisher": "publisher", "subscriber": "reader"}
_ROLE_WORDS: Final = {"publisher": "named as publisher", "subscriber": "named as reader", "other": "not named"}
_NO_MEMBERS: Final = (
    "Roles were not told, so there are scores only: confidence is that of an attacker who suspects the same node again "
    "and again, and nothing here says whether it is right. --members FILE would."
)
_ABOUT: Final = (
    "Named is who is suspected, with a confidence of 0.95 or more, in the parts of the record again and again. "
    "Intervals are at 95 %, corrected for the number of attackers on a role; a capture of few nodes leaves them wide. "
    "A set is how many nodes one would have to name wrongly to name a member, and itself. Cadence says who is unlike "
    "others, and names nobody."
)
_STYLE: Final = ".silent{color:var(--soft)}.ring{max-width:30rem;margin:0 auto}"
