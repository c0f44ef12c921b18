"""Roles in several topics of one mesh."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypeAlias

from veilcast.machine import Address
from veilcast.sim.rng import derive_rng

TopicRoles: TypeAlias = dict[Address, str]
"""Nodes that are more than forwarders of a topic: "publisher", "subscriber", "both", or "forger"."""


def draw_topic_roles(seed: int, place: int, addresses: Sequence[Address], subscribers: int) -> TopicRoles:
    """Draw the roles in one topic of many: a publisher, which may subscribe, too, and the subscribers."""
    rng = derive_rng(seed, "roles", str(place))
    publisher, *others = rng.sample(addresses, subscribers + 1)
    if rng.random() < _BOTH:
        return {publisher: "both"} | dict.fromkeys(others[1:], "subscriber")
    return {publisher: "publisher"} | dict.fromkeys(others, "subscriber")


def addresses_with_role(roles: TopicRoles, role: str) -> list[Address]:
    """Addresses that have this role, alone or with the other one."""
    return [address for address, held in roles.items() if held in (role, "both")]


def grants_for_roles(roles: dict[str, str]) -> tuple[tuple[str, str], ...]:
    """The grants that a node needs for its roles; a publisher's keys also open the topic's notes."""
    return tuple((topic, _GRANTS.get(role, role)) for topic, role in roles.items())


_BOTH: Final = 0.5
_GRANTS: Final = {"both": "publisher", "forger": "subscriber"}
