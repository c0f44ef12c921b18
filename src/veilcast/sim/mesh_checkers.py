"""What must hold in a mesh that is played on: locks end, parents lead to a root, and notes would reach their readers.

They look into the tables of all nodes at once, which nobody in the mesh can.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from veilcast.machine import Address
from veilcast.sim.checkers import Checker, ViolationError

if TYPE_CHECKING:
    from veilcast.sim.world import World


class Leases(Checker):
    """No lock outlives its lease by more than the heartbeat at which this is noticed."""

    def __init__(self, lease_us: int, period_us: int) -> None:
        self._allowed_us, self._period_us = lease_us + period_us, period_us

    def on_change(self, world: World, address: Address, machine: Any) -> None:
        now = world.clock(address)
        if machine.next_timer() < now:
            return  # It was stopped, and has not had the heartbeat yet at which it notices.
        for game in machine.overlay.policy.locks():
            if now - game.since_us > self._allowed_us:
                raise ViolationError(f"{address} is {game.state.name} for {now - game.since_us} us, past its lease")


class Tree(Checker):
    """Whom each node has the topic from leads to one who has it from nobody, at every moment."""

    def __init__(self, token: bytes) -> None:
        self._token = token

    def on_change(self, world: World, address: Address, machine: Any) -> None:
        walked: dict[Address, None] = {}
        at: list[Address] = [address]
        while at:
            if at[0] in walked:
                raise ViolationError(f"{address} has the topic from itself, by {', '.join(walked)}")
            walked[at[0]] = None
            inner = world.machine(at[0])
            at = [] if inner is None else inner.overlay.branches.inward(self._token)


class Reach(Checker):
    """In the end a note of the publisher would reach every reader: each hop is sent, and accepted."""

    def __init__(self, token: bytes, publisher: Address, readers: Iterable[Address]) -> None:
        self._token, self._publisher, self._readers = token, publisher, tuple(readers)

    def on_end(self, world: World) -> None:
        reached = reach(world, self._token, self._publisher)
        for reader in self._readers:
            if reader not in reached:
                raise ViolationError(f"{reader} is cut off from {self._publisher}")


def reach(world: World, token: bytes, start: Address) -> dict[Address, None]:
    """Where a note would get to from here, if tables stayed as they are."""
    reached: dict[Address, None] = {start: None}
    border = [start]
    while border:
        address = border.pop()
        for name in world.machine(address).overlay.adjacent(token):
            machine = world.machine(name)
            if name not in reached and machine is not None and machine.knows(address):
                reached[name] = None
                border.append(name)
    return reached
