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
from veilcast.mesh.routes import AdvertisedOrigin
from veilcast.mesh.swap import SwapGame
from veilcast.wire.mesh import Decline, Invite, Message


class MeshPosition(NamedTuple):
    """A position in a mesh: from whom one there has the topic, in place of the nearest ways to these origins."""

    inward: tuple[Address, ...]
    origins: tuple[AdvertisedOrigin, ...]


class PolicyContext(Protocol):
    """What a policy may see and do of its node."""

    branches: Branches

    def present_neighbours(self) -> list[Address]:
        """The neighbours that are there."""

    def mesh_neighbours(self, token: bytes) -> list[Address]:
        """Those of them next to us in this mesh, as far as we know."""

    def is_in_mesh(self, token: bytes) -> bool:
        """Whether the node has any reason to be in this mesh."""

    def originates(self, token: bytes) -> bool: ...

    def reachable_origins(self, token: bytes) -> list[AdvertisedOrigin]:
        """The origins of this topic to which there is a way."""

    def send(self, neighbour: Address, message: Message) -> None: ...

    def acquaintances(self) -> list[Address]:
        """Those we exchange heartbeats with although they are no neighbours."""

    def set_acquaintances(self, names: Collection[Address], now: int) -> None:
        """Let these be all our acquaintances; neighbours among them are passed over."""

    def request_fresh_chains(self, origins: Collection[AdvertisedOrigin], now: int) -> None:
        """Ask these origins, all of them reachable, for fresh chains."""

    def reconcile(self, token: bytes, now: int) -> None:
        """Look again at whom we need as parents, outside of the calls below."""


class HidingPolicy(Protocol):
    """After each of these calls the node looks again at whom it needs as parents."""

    def parent(self, token: bytes) -> Address | None: ...

    def covers(self, token: bytes) -> Collection[Address]: ...

    def position(self, token: bytes) -> MeshPosition | None: ...

    def former_neighbours(self, token: bytes) -> Collection[Address]: ...

    def is_locked(self, token: bytes) -> bool:
        """Whether nothing may change in this mesh just now."""

    def on_advert(self, token: bytes, now: int) -> None:
        """An advert for this topic came, or is our own."""

    def on_joined(self, token: bytes, now: int) -> None:
        """The node has a parent in this mesh."""

    def on_left(self, token: bytes) -> list[Address]:
        """It has none any more; gives the covers that are to be dismissed."""

    def on_forwarded(self, token: bytes, now: int) -> None:
        """The node has had a note of this topic, and sent it on."""

    def on_neighbour_lost(self, neighbour: Address) -> None: ...

    def on_message(self, message: Message, source: Address, now: int) -> None:
        """An `Invite` or `Decline`; a `Subscribe`, which may answer an invitation; or one of a swap."""

    def beat(self, now: int) -> None: ...

    def size(self) -> int:
        """How much it remembers."""

    def active_games(self) -> list[SwapGame]:
        """The games that it is bound in."""

    def swaps_completed(self) -> int:
        """How many games it began that ended in a swap."""


class BaselinePolicy:
    """No cover, neither for others nor for ourselves, and every node where the adverts lead."""

    def __init__(self, seat: PolicyContext) -> None:
        self._seat = seat

    def parent(self, token: bytes) -> Address | None:
        return None

    def covers(self, token: bytes) -> Collection[Address]:
        return ()

    def position(self, token: bytes) -> MeshPosition | None:
        return None

    def former_neighbours(self, token: bytes) -> Collection[Address]:
        return ()

    def is_locked(self, token: bytes) -> bool:
        return False

    def on_advert(self, token: bytes, now: int) -> None:
        pass

    def on_joined(self, token: bytes, now: int) -> None:
        pass

    def on_left(self, token: bytes) -> list[Address]:
        return []

    def on_forwarded(self, token: bytes, now: int) -> None:
        pass

    def on_neighbour_lost(self, neighbour: Address) -> None:
        pass

    def on_message(self, message: Message, source: Address, now: int) -> None:
        if isinstance(message, Invite):
            self._seat.send(source, Decline(message.token))

    def beat(self, now: int) -> None:
        pass

    def size(self) -> int:
        return 0

    def active_games(self) -> list[SwapGame]:
        return []

    def swaps_completed(self) -> int:
        return 0
