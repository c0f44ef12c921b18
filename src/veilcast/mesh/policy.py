"""Policies: what is done to hide the members of a mesh, behind one narrow interface. The baseline does nothing.

A policy is told when the node joins and leaves a mesh, gets the messages that are its own, and is asked at every
heartbeat. It answers two questions: who is my parent where I am in a mesh for the policy's sake alone, and which
branches are there for its sake, and so are no reason for the node to stay.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol

from veilcast.machine import Address
from veilcast.wire.messages import Decline, Invite, Message


class Seat(Protocol):
    """What a policy may see and do of its node."""

    def present(self) -> list[Address]:
        """The neighbours that are there."""

    def adjacent(self, token: bytes) -> list[Address]:
        """Those of them next to us in this mesh, as far as we know."""

    def takes_part(self, token: bytes) -> bool:
        """Whether the node has any reason to be in this mesh."""

    def send(self, neighbour: Address, message: Message) -> None: ...


class Policy(Protocol):
    """After each of these calls the node looks again at whom it needs as parents."""

    def parent(self, token: bytes) -> Address | None: ...

    def covers(self, token: bytes) -> Collection[Address]: ...

    def joined(self, token: bytes, now: int) -> None:
        """The node has a parent in this mesh."""

    def left(self, token: bytes) -> list[Address]:
        """It has none any more; gives the covers that are to be dismissed."""

    def lost(self, neighbour: Address) -> None: ...

    def received(self, message: Message, source: Address) -> None:
        """An `Invite` or `Decline`, or a `Subscribe`, which may answer an invitation."""

    def beat(self, now: int) -> None: ...

    def size(self) -> int:
        """How much it remembers."""


class Baseline:
    """No cover, neither for others nor for ourselves."""

    def __init__(self, seat: Seat) -> None:
        self._seat = seat

    def parent(self, token: bytes) -> Address | None:
        return None

    def covers(self, token: bytes) -> Collection[Address]:
        return ()

    def joined(self, token: bytes, now: int) -> None:
        pass

    def left(self, token: bytes) -> list[Address]:
        return []

    def lost(self, neighbour: Address) -> None:
        pass

    def received(self, message: Message, source: Address) -> None:
        if isinstance(message, Invite):
            self._seat.send(source, Decline(message.token))

    def beat(self, now: int) -> None:
        pass

    def size(self) -> int:
        return 0
