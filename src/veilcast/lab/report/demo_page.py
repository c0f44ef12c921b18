"""The demo's page: networks side by side, each as its members know it and as its observer sees it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from veilcast.lab.attack.observer.quick_look import QuickLook
from veilcast.lab.report import network_picture
from veilcast.lab.report.html_document import html_document
from veilcast.lab.report.markup import Markup, join, tag
from veilcast.lab.report.network_picture import NodeDot, Role


@dataclass(frozen=True)
class DemoNetwork:
    """One network, and the result of its run."""

    found: dict[str, Any]
    addresses: Sequence[str]
    roles: Sequence[str]
    """The role of each address."""
    links: Sequence[tuple[int, int]]
    glance: QuickLook


def render_page(networks: Sequence[DemoNetwork]) -> str:
    return html_document(
        "What an observer sees",
        tag("p", _ABOUT, class_="lead"),
        network_picture.draw_key(),
        tag("p", "On the right, shapes are who is named; a dashed ring is a reader that is not.", class_="small"),
        *map(_network, networks),
        styles=network_picture.STYLE,
    )


def _network(tried: DemoNetwork) -> Markup:
    found = tried.found
    latency = found["latency_median_s"]
    facts = [
        f"{found['delivered']} of {found['expected']} notes delivered"
        + ("" if latency is None else f", half of them within {latency * 1000:.0f} ms"),
        f"{found['datagrams']:,} datagrams on the wire; sizes: {found['sizes']}",
        f"{found['publications_seen']} publications seen",
        f"readers named: {found['readers_named']}, of them rightly {found['readers_named_rightly']}",
    ]
    return tag(
        "section",
        tag("h2", found["profile"]),
        tag("ul", *(tag("li", fact) for fact in facts)),
        tag("div", _known(tried), _observer_view(tried), class_="pair"),
        class_="experiment",
    )


def _known(tried: DemoNetwork) -> Markup:
    dots = [
        NodeDot(_role(role), f"{address}: {role}") for address, role in zip(tried.addresses, tried.roles, strict=True)
    ]
    return _figure(network_picture.draw_network(dots, tried.links, {}, said := "as its members know it"), said)


def _observer_view(tried: DemoNetwork) -> Markup:
    """Every link that carried a datagram, and arrows where notifications stood out."""
    place, glance = {address: number for number, address in enumerate(tried.addresses)}, tried.glance
    named = dict.fromkeys(glance.readers, "subscriber")
    if glance.publisher is not None:
        named[glance.publisher] = "publisher"
    dots = []
    for address, role in zip(tried.addresses, tried.roles, strict=True):
        seen = named.get(address, "forwarder")
        missed = role == "subscriber" and seen != role
        dots.append(NodeDot(_role(seen), f"{address}: seen as {seen}, is {role}", missed))
    links = sorted((place[u], place[v]) for u, v in glance.links if u in place and v in place)
    notes = {(place[u], place[v]): count for (u, v), count in glance.notes.items() if u in place and v in place}
    return _figure(network_picture.draw_network(dots, links, notes, said := "as the observer sees it"), said)


def _figure(picture: Markup, said: str) -> Markup:
    return tag("figure", join(picture, tag("figcaption", said)))


def _role(name: str) -> Role:
    return "publisher" if name == "publisher" else "subscriber" if name == "subscriber" else "other"


_ABOUT = (
    "Three networks of real nodes on one machine, drawn from what happened in one run. On the left what their members "
    "know, on the right what somebody knows who records the time, addresses and size of every datagram on every wire."
)
