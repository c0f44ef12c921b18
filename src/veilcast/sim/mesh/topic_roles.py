"""Several topics in one mesh's world: who is what in which, and checkers that look at the notes of one topic only."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypeAlias

from veilcast.machine import Address
from veilcast.sim.rng import derive_rng

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


_BOTH: Final = 0.5
_GRANTS: Final = {"both": "publisher", "forger": "subscriber"}
