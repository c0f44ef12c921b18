"""The words of `sub` and `status` that depend on the mode of the running node.

These commands must not load any mode, so the words of all modes are here. A mode without an entry has the words of
`OTHER`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, NamedTuple

from veilcast.cli.phrases import format_time, pluralize

if TYPE_CHECKING:
    from veilcast.net.control_protocol import Status


class StatusWording(NamedTuple):
    connections: Callable[[Status], tuple[str, str]]
    """Returns the label and the text of the line about peers."""
    ready: Callable[[int | None], str]
    """Says from when on a new subscription receives notes; the argument is that time in Unix microseconds, if known."""
    hides_in_group: bool = True
    """True if a member hides among the members that the node knows."""
    has_covers: bool = False
    """True if other members may act as subscribers."""


def mode_texts(mode: str) -> StatusWording:
    return _TEXTS.get(mode, OTHER)


def _group(status: Status) -> tuple[str, str]:
    return "group", f"{pluralize(status.members, 'member')}, {pluralize(status.neighbours, 'neighbour')}"


def _listing(status: Status) -> tuple[str, str]:
    members, streams = pluralize(status.members, "member"), pluralize(status.neighbours, "stream")
    return "group", f"{members} in the listing, {streams} up"


def _proxies(status: Status) -> tuple[str, str]:
    return "proxies", f"{status.neighbours} up; how many others use them they do not say"


def _broker(status: Status) -> tuple[str, str]:
    return "broker", f"{pluralize(status.neighbours, 'stream')} up; how many others use it it does not say"


def _brokers(status: Status) -> tuple[str, str]:
    replicas = pluralize(status.neighbours, "replica")
    return "brokers", f"{replicas} of the edge node up; how many others use it is not said"


def _ready_in_mesh(until_us: int | None) -> str:
    if until_us is None:
        return "no publisher is known there yet; notes come some time after the first publication"
    return f"notes come from {format_time(until_us)} on, when this node joins the mesh"


def _taken_on(by: str) -> Callable[[int | None], str]:
    return lambda _: f"notes come from when {by} taken it on, mostly within seconds"


OTHER: Final = StatusWording(_group, lambda _: "notes come from when the network has taken it on")
_TEXTS: Final = {
    "mesh": StatusWording(_group, _ready_in_mesh, has_covers=True),
    "relay": StatusWording(_proxies, _taken_on("the relay has"), hides_in_group=False),
    "tree": StatusWording(_listing, lambda _: "notes come from when its tree stands, mostly within a minute"),
    "foil": StatusWording(_broker, _taken_on("the broker has"), hides_in_group=False),
    "brokers": StatusWording(_brokers, _taken_on("the brokers have"), hides_in_group=False),
}
