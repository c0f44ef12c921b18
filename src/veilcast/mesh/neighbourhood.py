"""Neighbourhoods: how a node comes by its neighbours, behind one narrow interface. The fixed one never changes.

A neighbourhood gets the membership messages that ride in heartbeats, is asked at every beat, and is told of neighbours
that failed. It acts through a `NeighbourhoodContext`: it opens links, closes them, and sends. Who of the linked is
there is found out
elsewhere, in `membership`.
"""

from __future__ import annotations

from typing import Protocol

from veilcast.errors import MalformedError
from veilcast.machine import Address
from veilcast.wire.mesh import Message


class NeighbourhoodContext(Protocol):
    """What a neighbourhood may see and do of its node."""

    def is_present(self, name: Address) -> bool:
        """Whether this neighbour has been heard, and not too long ago."""

    def is_fresh(self, name: Address, now: int) -> bool:
        """Whether this neighbour has been heard, and just now."""

    def unheard_us(self, now: int) -> int:
        """For how long no neighbour at all has been heard."""

    def open(self, name: Address, now: int, key: bytes = b"", *, chosen: bool = True) -> None:
        """Exchange heartbeats with this one from now on: with its certified key, and whether it is our choice."""

    def close(self, name: Address, now: int) -> None: ...

    def send(self, name: Address, message: Message) -> None:
        """With the next heartbeat; one who is no neighbour gets a single one, with a single message."""

    def store_anchors(self, anchors: list[Address]) -> None:
        """Have the driver keep these for our next life, in place of those that it kept before."""


class Neighbourhood(Protocol):
    accepts_strangers: bool
    """Whether heartbeats of strangers are looked at."""

    def on_message(self, message: Message, source: Address, now: int) -> None:
        """A membership message, perhaps a stranger's; raises `RemoteError` for what we will not do."""

    def on_neighbour_lost(self, name: Address, now: int) -> None:
        """This neighbour has failed."""

    def beat(self, now: int) -> None: ...

    def leave(self, now: int) -> None:
        """Take leave with the next heartbeat, after which the owner stops the node."""

    def sizes(self) -> dict[str, int]:
        """How much it remembers."""


class FixedNeighbourhood:
    """The neighbours that the owner named, whatever happens: one that fails is waited for."""

    accepts_strangers = False

    def on_message(self, message: Message, source: Address, now: int) -> None:
        raise MalformedError("the neighbourhood is fixed")

    def on_neighbour_lost(self, name: Address, now: int) -> None:
        pass

    def beat(self, now: int) -> None:
        pass

    def leave(self, now: int) -> None:
        pass

    def sizes(self) -> dict[str, int]:
        return {}
