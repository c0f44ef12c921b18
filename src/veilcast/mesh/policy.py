"""Policies: what is done to hide the members of a mesh, behind one narrow interface. The baseline does nothing.

A policy is told when the node joins and leaves a mesh, gets the messages that are its own, and is asked at every
heartbeat. It answers four questions: who is my parent where I am in a mesh for the policy's sake alone; which branches
are there for its sake, and so are no reason for the node to stay; which place it has given the node, where that is not
the one that the adverts lead to; and who is to get notes a while longer although no branch leads there any more.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple, Protocol

from veilcast.machine import Address
from veilcast.mesh.branches import Branches
from veilcast.mesh.routes import Origin
from veilcast.mesh.swap import Game
from veilcast.wire.messages import Decline, Invite, Message


class Place(NamedTuple):
    """A position in a mesh: from whom one there has the topic, in place of the nearest ways to these origins."""

    inward: tuple[Address, ...]
    origins: tuple[Origin, ...]


class Seat(Protocol):
    """What a policy may see and do of its node."""

    branches: Branches

    def present(self) -> list[Address]:
        """The neighbours that are there."""

    def adjacent(self, token: bytes) -> list[Address]:
        """Those of them next to us in this mesh, as far as we know."""

    def takes_part(self, token: bytes) -> bool:
        """Whether the node has any reason to be in this mesh."""

    def originates(self, token: bytes) -> bool: ...

    def reachable(self, token: bytes) -> list[Origin]:
        """The origins of this topic to which there is a way."""

    def send(self, neighbour: Address, message: Message) -> None: ...

    def acquaintances(self) -> list[Address]:
        """Those we exchange heartbeats with although they are no neighbours."""

    def acquaint(self, names: Collection[Address], now: int) -> None:
        """Let these be all our acquaintances; neighbours among them are passed over."""

    def appeal(self, origins: Collection[Origin], now: int) -> None:
        """Ask these origins, all of them reachable, for fresh chains."""

    def reconcile(self, token: bytes, now: int) -> None:
        """Look again at whom we need as parents, outside of the calls below."""


class Policy(Protocol):
    """After each of these calls the node looks again at whom it needs as parents."""

    def parent(self, token: bytes) -> Address | None: ...

    def covers(self, token: bytes) -> Collection[Address]: ...

    def place(self, token: bytes) -> Place | None: ...

    def lingering(self, token: bytes) -> Collection[Address]: ...

    def binds(self, token: bytes) -> bool:
        """Whether nothing may change in this mesh just now."""

    def advertised(self, token: bytes, now: int) -> None:
        """An advert for this topic came, or is our own."""

    def joined(self, token: bytes, now: int) -> None:
        """The node has a parent in this mesh."""

    def left(self, token: bytes) -> list[Address]:
        """It has none any more; gives the covers that are to be dismissed."""

    def passed_on(self, token: bytes, now: int) -> None:
        """The node has had a note of this topic, and sent it on."""

    def lost(self, neighbour: Address) -> None: ...

    def received(self, message: Message, source: Address, now: int) -> None:
        """An `Invite` or `Decline`; a `Subscribe`, which may answer an invitation; or one of a swap."""

    def beat(self, now: int) -> None: ...

    def size(self) -> int:
        """How much it remembers."""

    def locks(self) -> list[Game]:
        """The games that it is bound in."""

    def played(self) -> int:
        """How many games it began that ended in a swap."""


class Baseline:
    """No cover, neither for others nor for ourselves, and every node where the adverts lead."""

    def __init__(self, seat: Seat) -> None:
        self._seat = seat

    def parent(self, token: bytes) -> Address | None:
        return None

    def covers(self, token: bytes) -> Collection[Address]:
        return ()

    def place(self, token: bytes) -> Place | None:
        return None

    def lingering(self, token: bytes) -> Collection[Address]:
        return ()

    def binds(self, token: bytes) -> bool:
        return False

    def advertised(self, token: bytes, now: int) -> None:
        pass

    def joined(self, token: bytes, now: int) -> None:
        pass

    def left(self, token: bytes) -> list[Address]:
        return []

    def passed_on(self, token: bytes, now: int) -> None:
        pass

    def lost(self, neighbour: Address) -> None:
        pass

    def received(self, message: Message, source: Address, now: int) -> None:
        if isinstance(message, Invite):
            self._seat.send(source, Decline(message.token))

    def beat(self, now: int) -> None:
        pass

    def size(self) -> int:
        return 0

    def locks(self) -> list[Game]:
        return []

    def played(self) -> int:
        return 0
