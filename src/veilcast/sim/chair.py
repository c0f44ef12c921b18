"""A chair: one node of a shell game on bare tables, with the real swap code in it and its post in our hands.

What a chair holds can be taken out as a value and put back, so that a search may try one move after another. Values
that differ only in the order of names are the same value: no rule of the swap asks for an order.

A name that somebody has on a liar's word alone is `Hearsay`. The code treats it like any other name; but the mark stays
with it as it is handed on, so that whatever goes back to the lie can be told from what honest nodes know themselves.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from random import Random
from typing import Final, NamedTuple, TypeAlias

from veilcast.machine import Address
from veilcast.mesh.duplicates import Duplicates
from veilcast.mesh.patience import Patience
from veilcast.mesh.swap import Game, State, SwapMessage, Swaps
from veilcast.wire.messages import Message

Names: TypeAlias = tuple[Address, ...]


class Hearsay(str):
    """A name for which there is only a liar's word."""

    __slots__ = ()


class Bound(NamedTuple):
    """The game a node is bound in; when it began is left out, for the search has no clock."""

    name: bytes
    state: State
    partner: Address
    inward: Names
    outward: Names
    theirs: tuple[Names, Names]
    missing: Names


class Held(NamedTuple):
    """What a node holds: who is next to it, the games that are over for it, and the one it is bound in."""

    inward: Names
    outward: Names
    over: tuple[bytes, ...] = ()
    bound: Bound | None = None


class Chair:
    """A `Board` of one topic that is always fit to play on. `sent` is what it wants to say, and to whom."""

    def __init__(self, name: str) -> None:
        self.name = Address(name)
        self.ins: Names = ()
        self.outs: Names = ()
        self.sent: list[tuple[Address, SwapMessage]] = []
        self.names = _Names()
        patience = Patience(1 << 60, 16)  # Time stands still in a search, so nobody's is ever at an end.
        bounds = {"names_max": 16, "name_bytes_max": 16, "memory": 64}
        self.swaps = Swaps(self, self.names, lease_us=LEASE_US, patience=patience, **bounds)

    def take(self) -> Held:
        """What the node holds now."""
        bound = None
        for game in self.swaps.locks():
            theirs = ordered(game.theirs[0]), ordered(game.theirs[1])
            sets = ordered(game.inward), ordered(game.outward), theirs, ordered(game.missing)
            bound = Bound(game.name, game.state, game.partner, *sets)
        return Held(ordered(self.ins), ordered(self.outs), tuple(sorted(self.swaps._over._seen)), bound)

    def put(self, held: Held) -> None:
        """Let the node hold this instead."""
        self.ins, self.outs, self.sent = held.inward, held.outward, []
        self.swaps._over = Duplicates(64)
        for name in held.over:
            self.swaps._over.add(name)
        self.swaps._games = {}
        if held.bound is not None:
            bound = held.bound
            game = Game(bound.name, TOKEN, bound.state, bound.partner, 0, LEASE_US)
            game.inward, game.outward, game.theirs = bound.inward, bound.outward, bound.theirs
            game.missing = dict.fromkeys(bound.missing)
            self.swaps._games[TOKEN] = game

    # --- the board

    def inward(self, token: bytes) -> list[Address]:
        return list(self.ins)

    def outward(self, token: bytes) -> list[Address]:
        return list(self.outs)

    def settled(self, token: bytes, now: int) -> bool:
        return True

    def moves(self, token: bytes) -> bool:
        return True

    def room(self, names: int) -> bool:
        return True

    def send(self, neighbour: Address, message: Message) -> None:
        if not isinstance(message, SwapMessage):
            raise TypeError("a swap sends messages of swaps only")
        self.sent.append((neighbour, message))

    def relink(
        self, token: bytes, inward: Sequence[Address], outward: Sequence[Address], now: int, *, moved: bool
    ) -> None:
        self.ins, self.outs = tuple(inward), tuple(outward)

    def doubted(self, token: bytes) -> None:
        pass

    def released(self, token: bytes) -> None:
        pass


def ordered(names: Iterable[str]) -> Names:
    return tuple(Address(name) for name in sorted(names, key=spelled))


def spelled(name: str) -> str:
    """The name, with a mark if it is hearsay, which compares equal to the name itself."""
    return f"{name}?" if isinstance(name, Hearsay) else str(name)


def tree(parents: dict[str, str]) -> dict[str, Held]:
    """What the nodes of a tree hold before any game. It is given by the parent of each; the root is its own."""
    return {
        name: Held(
            ordered([parent] if parent != name else []),
            ordered(child for child, above in parents.items() if above == name != child),
        )
        for name, parent in parents.items()
    }


class _Names(Random):
    """Names of games in place of random ones: it is said before which comes next, so that states are met again."""

    def __init__(self) -> None:
        super().__init__(0)
        self.next = b""

    def randbytes(self, n: int) -> bytes:
        return self.next.ljust(n)[:n]


TOKEN: Final = bytes(32)
LEASE_US: Final = 100
NAME_BYTES: Final = 16
"""Of a game."""
