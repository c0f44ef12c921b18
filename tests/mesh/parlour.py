"""A parlour for shell games: the swap machines of a few nodes on bare tables, and every message in our hands."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from random import Random
from typing import TypeAlias

from veilcast.errors import RemoteError
from veilcast.machine import Address
from veilcast.mesh.swap import Game, SwapMessage, Swaps
from veilcast.wire.messages import Message

TOKEN = bytes(32)
LEASE = 100
Post: TypeAlias = tuple[Address, Address, SwapMessage]
"""From whom, to whom, what."""


class Chair:
    """A node as far as a swap sees it."""

    def __init__(self, name: Address, parlour: Parlour) -> None:
        self.name, self.parlour = name, parlour
        self.ins: tuple[Address, ...] = ()
        self.outs: tuple[Address, ...] = ()
        self.names = _Names(name)
        self.swaps = Swaps(self, self.names, lease_us=LEASE, names_max=16, name_bytes_max=16, memory=64)

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
        assert isinstance(message, SwapMessage)
        self.parlour.sent.append(message)
        self.parlour.post.append((self.name, neighbour, message))

    def relink(
        self, token: bytes, inward: Sequence[Address], outward: Sequence[Address], now: int, *, moved: bool
    ) -> None:
        self.ins, self.outs = tuple(inward), tuple(outward)

    def doubted(self, token: bytes) -> None:
        pass

    def released(self, token: bytes) -> None:
        pass


class Parlour:
    """A tree, given as the parent of each node; the root is its own."""

    def __init__(self, parents: dict[str, str]) -> None:
        self.post: list[Post] = []
        self.sent: list[Message] = []
        self.now = 0
        self.chairs = {Address(name): Chair(Address(name), self) for name in parents}
        for child, parent in parents.items():
            if child != parent:
                self.chairs[Address(child)].ins = (Address(parent),)
                self.chairs[Address(parent)].outs += (Address(child),)

    def start(self, name: str, child: str) -> bool:
        return self.chairs[Address(name)].swaps.start(TOKEN, Address(child), self.now)

    def deliver(self, place: int = 0) -> Message:
        source, target, message = self.post.pop(place)
        with suppress(RemoteError):
            self.chairs[target].swaps.received(message, source, self.now)
        return message

    def play_out(self, rng: Random | None = None) -> None:
        """Deliver all there is: in order, or in any order that keeps each pair's own."""
        while self.post:
            firsts: dict[tuple[Address, Address], int] = {}
            for place, (source, target, _) in enumerate(self.post):
                firsts.setdefault((source, target), place)
            self.deliver(rng.choice(list(firsts.values())) if rng else 0)

    def let_leases_end(self) -> None:
        self.now += LEASE + 1
        for chair in self.chairs.values():
            chair.swaps.expire(self.now)

    def bound(self) -> list[str]:
        return [name for name, chair in self.chairs.items() if chair.swaps.bound(TOKEN)]

    def inward_edges(self) -> list[tuple[str, str]]:
        return sorted((parent, name) for name, chair in self.chairs.items() for parent in chair.ins)

    def outward_edges(self) -> list[tuple[str, str]]:
        return sorted((name, child) for name, chair in self.chairs.items() for child in chair.outs)

    def check_parents(self) -> None:
        """Every node's parents lead to one who has none; there is one such."""
        roots = {self._root(name) for name in self.chairs}
        assert len(roots) == 1, f"several roots: {sorted(roots)}"

    def _root(self, name: Address) -> Address:
        walked: list[Address] = []
        while self.chairs[name].ins:
            assert name not in walked, f"a circle: {walked}"
            walked.append(name)
            (name,) = self.chairs[name].ins
        return name


def random_tree(rng: Random, nodes: int) -> dict[str, str]:
    return {"n0": "n0"} | {f"n{i}": f"n{rng.randrange(i)}" for i in range(1, nodes)}


def game_of(parlour: Parlour, name: str) -> Game:
    (game,) = parlour.chairs[Address(name)].swaps.locks()
    return game


class _Names(Random):
    """Names of games that say whose they are, so that a state can be met again."""

    def __init__(self, owner: str) -> None:
        super().__init__(0)
        self.owner, self.count = owner, 0

    def randbytes(self, n: int) -> bytes:
        self.count += 1
        return f"{self.owner} {self.count}".encode().ljust(n)
