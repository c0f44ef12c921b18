"""How much cover a topic gets for the privacy that its readers are to have.

A rule of thumb with measured numbers behind it: the share of other members that must act as subscribers, so that
insiders who watch for fifty epochs tell readers from others hardly better than by guessing (AUC at most 0.55). It grows
with the share of members that may be insiders. Where readers are many, sending to all costs little more and leaves
nothing to tell.
"""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

from veilcast.errors import ConfigError

Privacy: TypeAlias = Literal["low", "medium", "high"]


def cover_share(privacy: Privacy, *, subscribers: int | None = None, members: int | None = None) -> float:
    """The share of others that act as subscribers; the size of topic and mesh counts if it is given."""
    if subscribers is None and members is None:
        return SHARES[privacy]
    if subscribers is None or members is None:
        raise ConfigError("a topic's size is the number of its subscribers and that of all members; give both")
    if members < 1 or not 0 <= subscribers <= members:
        raise ConfigError("a topic has from none to all of the members as subscribers, and there is at least one")
    return 1.0 if subscribers >= BROADCAST_FROM * members else SHARES[privacy]


SHARES: Final[dict[Privacy, float]] = {"low": 0.25, "medium": 0.55, "high": 0.78}
"""For a hundredth, a twentieth and a tenth of the members as insiders."""

BROADCAST_FROM: Final = 0.2
"""The share of members that subscribe from which on everybody acts as if."""
