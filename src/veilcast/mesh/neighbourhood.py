"""The interface of a neighbourhood: how a node finds its neighbours. A fixed neighbourhood never changes.

A neighbourhood gets the membership messages in heartbeats, runs at every beat, and is told of failed neighbours. It
acts through a `NeighbourhoodContext`: it opens and closes links, and sends. `neighbour_table` determines which linked
neighbours are present.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from veilcast.errors import MalformedError
from veilcast.machine import Address
from veilcast.wire.base import Message
from veilcast.wire.mesh import Replace


class NeighbourhoodContext(Protocol):
    """The view of its node that a neighbourhood has."""

    def is_present(self, name: Address) -> bool:
        """True if this neighbour was heard, and not too long ago."""

    def is_fresh(self, name: Address, now: int) -> bool:
        """True if this neighbour was heard just now."""

    def unheard_us(self, now: int) -> int:
        """Time since any neighbour was heard, in microseconds."""

    def open(self, name: Address, now: int, key: bytes = b"", *, chosen: bool = True) -> None:
        """Exchange heartbeats with this node from now on. `key`: its certified key. `chosen`: this node chose it."""

    def close(self, name: Address, now: int) -> None: ...

    def mark_lost(self, name: Address, now: int) -> None:
        """This neighbour is gone, at least for now. Its link stays."""

    def send(self, name: Address, message: Message) -> None:
        """Queue for the next heartbeat. A node that is not a neighbour gets a single heartbeat with a single
        message."""

    def store_anchors(self, anchors: list[Address]) -> None:
        """Have the driver store these anchors for the next run, in place of the earlier ones."""


class Neighbourhood(Protocol):
    accepts_strangers: bool
    """True if heartbeats of strangers are read."""

    def on_message(self, message: Message, source: Address, now: int) -> None:
        """Handle a membership message, possibly a stranger's. Raises `RemoteError` if it is refused."""

    def on_neighbour_lost(self, name: Address, now: int) -> None: ...

    def beat(self, now: int) -> None: ...

    def leave(self, now: int) -> None:
        """Say goodbye in the next heartbeat, after which the owner stops the node."""

    def sizes(self) -> dict[str, int]:
        """Number of entries of each table."""


class FixedNeighbourhood:
    """The neighbours that the owner named. One that failed or left is waited for."""

    accepts_strangers = False

    def __init__(self, context: NeighbourhoodContext, names: Iterable[Address]) -> None:
        self._context, self._names = context, tuple(names)

    def on_message(self, message: Message, source: Address, now: int) -> None:
        if not isinstance(message, Replace):
            raise MalformedError("the neighbourhood is fixed")
        self._context.mark_lost(source, now)

    def on_neighbour_lost(self, name: Address, now: int) -> None:
        pass

    def beat(self, now: int) -> None:
        pass

    def leave(self, now: int) -> None:
        for name in self._names:
            if self._context.is_present(name):
                self._context.send(name, Replace(None))

    def sizes(self) -> dict[str, int]:
        return {}
