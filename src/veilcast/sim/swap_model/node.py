"""One node of the swap model: the real swap code on bare tables, with its messages in the search's hands.

The state of a node can be taken out as a value and put back, so that a search can try one step after another. States
that differ only in the order of names are equal: no rule of the swap depends on that order.

A name that a node knows from a Byzantine node alone is an `UnverifiedName`. The code treats it like any other name. The
mark stays with it when it is sent on, so that all consequences of the forgery can be told from what honest nodes know
themselves.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from random import Random
from typing import Final, NamedTuple, TypeAlias

from veilcast.machine import Address
from veilcast.mesh.replay import SeenIds
from veilcast.mesh.swap import LockLimits, SwapGame, SwapMessage, Swaps, SwapState
from veilcast.wire.base import Message

Names: TypeAlias = tuple[Address, ...]


class UnverifiedName(str):
    """A name that only a Byzantine node has vouched for."""

    __slots__ = ()


class BoundGame(NamedTuple):
    """The game that a node is bound in, without its start time: the search has no clock."""

    name: bytes
    state: SwapState
    partner: Address
    inward: Names
    outward: Names
    theirs: tuple[Names, Names]
    missing: Names


class NodeState(NamedTuple):
    """The state of a node: its neighbours, the games that are over for it, and the game it is bound in."""

    inward: Names
    outward: Names
    over: tuple[bytes, ...] = ()
    bound: BoundGame | None = None


class ModelNode:
    """A `SwapContext` of one topic that always allows swaps. `sent` holds its messages with their destinations."""

    def __init__(self, name: str) -> None:
        self.name = Address(name)
        self.inward_names: Names = ()
        self.outward_names: Names = ()
        self.sent: list[tuple[Address, SwapMessage]] = []
        self.names = _Names()
        lock_limits = LockLimits(1 << 60, 16)  # Time stands still in a search, so no limit is ever reached.
        bounds = {"names_max": 16, "name_bytes_max": 16, "memory": 64}
        self.swaps = Swaps(self, self.names, lease_us=LEASE_US, lock_limits=lock_limits, **bounds)

    def snapshot(self) -> NodeState:
        """The present state of the node."""
        bound = None
        for game in self.swaps.active_games():
            theirs = sort_names(game.partner_neighbours[0]), sort_names(game.partner_neighbours[1])
            sets = sort_names(game.inward), sort_names(game.outward), theirs, sort_names(game.awaited_votes)
            bound = BoundGame(game.name, game.state, game.partner, *sets)
        return NodeState(
            sort_names(self.inward_names), sort_names(self.outward_names), tuple(sorted(self.swaps._over._seen)), bound
        )

    def restore(self, held: NodeState) -> None:
        """Put the node into this state."""
        self.inward_names, self.outward_names, self.sent = held.inward, held.outward, []
        self.swaps._over = SeenIds(64)
        for name in held.over:
            self.swaps._over.add(name)
        self.swaps._games = {}
        if held.bound is not None:
            bound = held.bound
            game = SwapGame(bound.name, TOKEN, bound.state, bound.partner, 0, LEASE_US)
            game.inward, game.outward, game.partner_neighbours = bound.inward, bound.outward, bound.theirs
            game.awaited_votes = dict.fromkeys(bound.missing)
            self.swaps._games[TOKEN] = game

    # --- the board

    def inward(self, token: bytes) -> list[Address]:
        return list(self.inward_names)

    def outward(self, token: bytes) -> list[Address]:
        return list(self.outward_names)

    def is_settled(self, token: bytes, now: int) -> bool:
        return True

    def may_move(self, token: bytes) -> bool:
        return True

    def has_room_for(self, names: int) -> bool:
        return True

    def may_link(self, names: Sequence[str]) -> bool:
        return True

    def send(self, neighbour: Address, message: Message) -> None:
        if not isinstance(message, SwapMessage):
            raise TypeError("a swap sends messages of swaps only")
        self.sent.append((neighbour, message))

    def relink(
        self, token: bytes, inward: Sequence[Address], outward: Sequence[Address], now: int, *, moved: bool
    ) -> None:
        self.inward_names, self.outward_names = tuple(inward), tuple(outward)

    def on_doubt(self, token: bytes) -> None:
        pass

    def on_released(self, token: bytes) -> None:
        pass


def sort_names(names: Iterable[str]) -> Names:
    return tuple(Address(name) for name in sorted(names, key=spell_name))


def spell_name(name: str) -> str:
    """The name, with a mark if it is unverified; an unverified name compares equal to the name itself."""
    return f"{name}?" if isinstance(name, UnverifiedName) else str(name)


def make_tree(parents: dict[str, str]) -> dict[str, NodeState]:
    """The states of a tree's nodes before any game. `parents` gives the parent of each node; the root is its own."""
    return {
        name: NodeState(
            sort_names([parent] if parent != name else []),
            sort_names(child for child, above in parents.items() if above == name != child),
        )
        for name, parent in parents.items()
    }


class _Names(Random):
    """Gives the names of games in place of random ones, so that the search meets the same states again."""

    def __init__(self) -> None:
        super().__init__(0)
        self.next = b""

    def randbytes(self, n: int) -> bytes:
        return self.next.ljust(n)[:n]


TOKEN: Final = bytes(32)
LEASE_US: Final = 100
NAME_BYTES: Final = 16
"""Length of a game's name in bytes."""
