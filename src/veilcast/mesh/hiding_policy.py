"""The interface of a hiding policy: what is done to hide the members of a mesh. The baseline does nothing.

A policy is told when the node joins and leaves a mesh, gets its own messages, and runs at every heartbeat. It answers
four questions:

1. `parent`: the parent of a node that is in a mesh only for the policy's sake;
2. `covers`: the branches that exist only for the policy's sake, and so are no reason for the node to stay;
3. `position`: the position that the policy has assigned, if it differs from the one that advertisements lead to;
4. `former_neighbours`: nodes that get notifications for a while longer, although no branch leads there any more.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple, Protocol

from veilcast.machine import Address
from veilcast.mesh.branches import Branches
from veilcast.mesh.routes import AdvertisedOrigin
from veilcast.mesh.swap import SwapGame
from veilcast.wire.base import Message
from veilcast.wire.mesh import Decline, Invite


class MeshPosition(NamedTuple):
    """A position in a mesh: the nodes that supply the topic there, in place of the shortest ways to these origins."""

    inward: tuple[Address, ...]
    origins: tuple[AdvertisedOrigin, ...]


class PolicyContext(Protocol):
    """The view of its node that a policy has."""

    branches: Branches

    def present_neighbours(self) -> list[Address]: ...

    def mesh_neighbours(self, token: bytes) -> list[Address]:
        """The adjacent nodes in this mesh, as far as known."""

    def is_in_mesh(self, token: bytes) -> bool:
        """True if the node has any reason to be in this mesh."""

    def originates(self, token: bytes) -> bool: ...

    def reachable_origins(self, token: bytes) -> list[AdvertisedOrigin]:
        """The origins of this topic to which there is a way."""

    def send(self, neighbour: Address, message: Message) -> None: ...

    def acquaintances(self) -> list[Address]:
        """Nodes that are not neighbours, but exchange heartbeats with this node."""

    def set_acquaintances(self, names: Collection[Address], now: int) -> None:
        """Replace all acquaintances by these. Neighbours among them are ignored."""

    def request_fresh_chains(self, origins: Collection[AdvertisedOrigin], now: int) -> None:
        """Ask these reachable origins for fresh chains."""

    def reconcile(self, token: bytes, now: int) -> None:
        """Recompute the needed parents, outside of the calls below."""


class HidingPolicy(Protocol):
    """After each of these calls the node recomputes the parents that it needs."""

    def parent(self, token: bytes) -> Address | None: ...

    def covers(self, token: bytes) -> Collection[Address]: ...

    def position(self, token: bytes) -> MeshPosition | None: ...

    def former_neighbours(self, token: bytes) -> Collection[Address]: ...

    def is_locked(self, token: bytes) -> bool:
        """True if nothing may change in this mesh now."""

    def on_advert(self, token: bytes, now: int) -> None:
        """An advertisement for this topic came, or is an own one."""

    def on_joined(self, token: bytes, now: int) -> None:
        """The node has a parent in this mesh."""

    def on_left(self, token: bytes) -> list[Address]:
        """The node has no parent any more. Returns the covers to dismiss."""

    def on_forwarded(self, token: bytes, now: int) -> None:
        """The node has received and forwarded a notification of this topic."""

    def on_neighbour_lost(self, neighbour: Address) -> None: ...

    def on_message(self, message: Message, source: Address, now: int) -> None:
        """An `Invite` or `Decline`; a `Subscribe`, which may answer an invitation; or a message of a swap."""

    def beat(self, now: int) -> None: ...

    def size(self) -> int:
        """Number of stored entries."""

    def active_games(self) -> list[SwapGame]:
        """The games in which the node is locked."""

    def swaps_completed(self) -> int:
        """Games begun by this node that ended in a swap."""


class BaselinePolicy:
    """No covers, and every node where the advertisements lead."""

    def __init__(self, context: PolicyContext) -> None:
        self._context = context

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
            self._context.send(source, Decline(message.token))

    def beat(self, now: int) -> None:
        pass

    def size(self) -> int:
        return 0

    def active_games(self) -> list[SwapGame]:
        return []

    def swaps_completed(self) -> int:
        return 0
