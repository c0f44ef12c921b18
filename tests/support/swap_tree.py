"""A tree of nodes that swap positions on bare tables. The test delivers every message."""

from __future__ import annotations

from contextlib import suppress
from random import Random
from typing import TypeAlias

from veilcast.errors import RemoteError
from veilcast.machine import Address
from veilcast.mesh.swap import SwapGame, SwapMessage
from veilcast.sim.swap_model.node import LEASE_US, TOKEN, ModelNode, make_tree
from veilcast.wire.base import Message

Post: TypeAlias = tuple[Address, Address, SwapMessage]
"""Sender, receiver, message."""


class SwapTree:
    """A tree, given as the parent of each node. The root is its own parent."""

    def __init__(self, parents: dict[str, str]) -> None:
        self.post: list[Post] = []
        self.sent: list[Message] = []
        self.now = self.games = 0
        self.chairs = {Address(name): ModelNode(name) for name in parents}
        for name, held in make_tree(parents).items():
            self.chairs[Address(name)].restore(held)

    def start(self, name: str, child: str) -> bool:
        chair = self.chairs[Address(name)]
        self.games += 1
        chair.names.next = f"game {self.games}".encode()
        started = chair.swaps.start(TOKEN, Address(child), self.now)
        self._collect(chair)
        return started

    def deliver(self, place: int = 0) -> Message:
        source, target, message = self.post.pop(place)
        with suppress(RemoteError):
            self.chairs[target].swaps.on_message(message, source, self.now)
        self._collect(self.chairs[target])
        return message

    def play_out(self, rng: Random | None = None) -> None:
        """Deliver all messages: in order, or in a random order that keeps the order of each pair."""
        while self.post:
            firsts: dict[tuple[Address, Address], int] = {}
            for place, (source, target, _) in enumerate(self.post):
                firsts.setdefault((source, target), place)
            self.deliver(rng.choice(list(firsts.values())) if rng else 0)

    def expire_leases(self) -> None:
        self.now += LEASE_US + 1
        for chair in self.chairs.values():
            chair.swaps.expire(self.now)
            self._collect(chair)

    def locked(self) -> list[str]:
        return [name for name, chair in self.chairs.items() if chair.swaps.is_locked(TOKEN)]

    def inward_edges(self) -> list[tuple[str, str]]:
        return sorted((parent, name) for name, chair in self.chairs.items() for parent in chair.inward_names)

    def outward_edges(self) -> list[tuple[str, str]]:
        return sorted((name, child) for name, chair in self.chairs.items() for child in chair.outward_names)

    def check_parents(self) -> None:
        """The parents of every node lead to the same root."""
        roots = {self._root(name) for name in self.chairs}
        assert len(roots) == 1, f"several roots: {sorted(roots)}"

    def _collect(self, chair: ModelNode) -> None:
        self.post += [(chair.name, target, message) for target, message in chair.sent]
        self.sent += [message for _, message in chair.sent]
        chair.sent = []

    def _root(self, name: Address) -> Address:
        walked: list[Address] = []
        while self.chairs[name].inward_names:
            assert name not in walked, f"a circle: {walked}"
            walked.append(name)
            (name,) = self.chairs[name].inward_names
        return name


def random_tree(rng: Random, nodes: int) -> dict[str, str]:
    return {"n0": "n0"} | {f"n{i}": f"n{rng.randrange(i)}" for i in range(1, nodes)}


def game_of(tree: SwapTree, name: str) -> SwapGame:
    (game,) = tree.chairs[Address(name)].swaps.active_games()
    return game
