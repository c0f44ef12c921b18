"""Several topics in one mesh's world: who is what in which, and checkers that look at the notes of one topic only."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, TypeAlias

from veilcast.machine import Address, Delivered, Event
from veilcast.sim.checkers import Checker
from veilcast.sim.rng import derive_rng
from veilcast.topics import Label

if TYPE_CHECKING:
    from veilcast.sim.world import World

TopicRoles: TypeAlias = dict[Address, str]
"""Who is more than a forwarder of a topic, and what: "publisher", "subscriber", "both" of these, or "forger"."""


def draw_topic_roles(seed: int, place: int, addresses: Sequence[Address], readers: int) -> TopicRoles:
    """The roles in one topic of many: a publisher, which reads too or does not, and so many readers."""
    rng = derive_rng(seed, "roles", str(place))
    publisher, *others = rng.sample(addresses, readers + 1)
    if rng.random() < _BOTH:
        return {publisher: "both"} | dict.fromkeys(others[1:], "subscriber")
    return {publisher: "publisher"} | dict.fromkeys(others, "subscriber")


def addresses_with_role(cast: TopicRoles, role: str) -> list[Address]:
    """Those who have this role, be it with another."""
    return [address for address, theirs in cast.items() if theirs in (role, "both")]


def grants_for_roles(wishes: dict[str, str]) -> tuple[tuple[str, str], ...]:
    """What a node must be granted for its roles; a publisher's keys open what it reads."""
    return tuple((topic, _GRANTS.get(role, role)) for topic, role in wishes.items())


class TopicChecker(Checker):
    """A checker that is told of one topic's deliveries only; one for each topic, and none mixes them up."""

    def __init__(self, topic: str, checker: Checker) -> None:
        self._pair, self._checker = Label(topic).pair, checker

    def on_event(self, world: World, address: Address, event: Event) -> None:
        if isinstance(event, Delivered) and self._pair in event.note.publication.pairs:
            self._checker.on_event(world, address, event)

    def on_end(self, world: World) -> None:
        self._checker.on_end(world)


_BOTH: Final = 0.5
_GRANTS: Final = {"both": "publisher", "forger": "subscriber"}
